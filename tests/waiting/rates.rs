//! Waiting for rates: in order, never too fast, and exact where the clock is.

use std::time::{Duration, Instant};

use limitset::{Algorithm, Clock, LimitSet, RateLimit, Report};

use crate::hands::{Mode, Scene};
use crate::support::Random;

/// Moves a clock by random steps: after each, those and only those have left the queue for whom a set of its own,
/// asked again and again, has room.
pub(crate) fn exact(mode: Mode) {
    for (seed, algorithm) in (1..).zip(Algorithm::ALL) {
        let rate = RateLimit::new("tokens", 12, Duration::from_secs(12)).algorithm(*algorithm);
        let builder = LimitSet::builder().limit(rate.report(Report::Optional)).clock(Clock::Manual);
        let model = builder.in_memory().unwrap();
        let scene = Scene::new(mode, builder);
        let mut random = Random::new(seed);
        for limits in [&model, &scene.limits] {
            limits.try_acquire([("tokens", 12)]).unwrap().release().unwrap();
        }
        let amounts: Vec<u64> = (0..6).map(|_| 1 + random.below(6)).collect();
        let mut waiters: Vec<_> = amounts.iter().map(|it| scene.waiter(&format!("tokens={it}"))).collect();
        let mut served = 0;
        while served < amounts.len() {
            let step = Duration::from_millis(random.below(2_500));
            model.advance(step).unwrap();
            scene.limits.advance(step).unwrap();
            while served < amounts.len() && model.try_acquire([("tokens", amounts[served])]).is_ok() {
                served += 1;
            }
            assert_eq!(scene.waiters(), (amounts.len() - served) as u64, "{algorithm} after {step:?}");
        }
        let tickets: Vec<u64> = waiters.iter_mut().map(|waiter| waiter.granted()).collect();
        assert!(tickets.is_sorted(), "{algorithm}: {tickets:?}");
        scene.assert_empty();
    }
}

/// Waits under the real clock. What is known to lie between two instants is never more than the rate gives.
pub(crate) fn paced(mode: Mode) {
    const WINDOW: Duration = Duration::from_millis(200);
    const BURST: u32 = 4;
    let rate = RateLimit::new("tokens", 4, WINDOW).algorithm(Algorithm::Gcra).report(Report::Optional);
    let scene = Scene::new(mode, LimitSet::builder().limit(rate));
    let before = Instant::now();
    let mut hands: Vec<_> = (0..3).map(|_| scene.hand()).collect();
    let mut waiting = Vec::new();
    for round in 0..6 {
        for hand in &mut hands {
            hand.tell("acquire tokens=1");
        }
        for (index, hand) in hands.iter_mut().enumerate() {
            waiting.push((hand.granted(), before.elapsed(), round, index));
        }
    }
    // Sorted by arrival, each was granted before it was heard of; so many cannot have come earlier than this.
    waiting.sort_unstable();
    for (count, (_, heard, ..)) in (1u32..).zip(&waiting) {
        let needed = WINDOW / 4 * count.saturating_sub(BURST);
        assert!(*heard >= needed, "{count} grants within {heard:?}, which take {needed:?}");
    }
    scene.assert_empty();
}
