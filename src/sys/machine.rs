//! The machine as the protocol's environment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::barrier::{self, BLIND_NANOS};
use super::liveness::Descriptors;
use super::{clock, futex};
use crate::core::{Env, Waited, Waiting, Wakes};

/// Real memory, real futexes, real deaths.
pub struct Machine {
    /// None: private memory, where nobody dies alone.
    pub(crate) descriptors: Option<Arc<Descriptors>>,
    /// How long waits for a lock last before the holder's life is questioned.
    pub(crate) lock_slice: u64,
    /// How long waits for a doorbell last before somebody looks for the dead.
    pub(crate) doorbell_slice: u64,
    /// Whether locks are waited for all the time.
    pub(crate) crowd: Crowd,
}

/// How crowded it is, as far as this process can tell by its own waits.
///
/// Whoever takes a lock from another processor has to wait for all the lines that were written under it: that takes some ten
/// times as long as what is then done. Where several processes want nothing else, it pays to let each have its way
/// for a few microseconds; where they meet by chance, it pays to look again at once.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// When a lock was last waited for.
    waited_at: AtomicU64,
    is_there: AtomicBool,
}

impl Crowd {
    /// Two waits within so many nanoseconds are a crowd.
    const CLOSE: u64 = 15_000;
    /// How long to let the others have their way.
    const REST: u64 = 2_500;
    /// Without a crowd there are at most two to the power of this many pauses between two looks.
    const LONGEST_SPIN: u32 = 6;

    /// Of sixteen pauses, in case the clock stands still: then all the rest takes is some microseconds too.
    const MOST_TURNS: u32 = 128;

    fn rest(&self, looks: u32, now: impl Fn() -> u64) {
        let begin = now();
        if looks == 0 {
            let last = self.waited_at.swap(begin, Ordering::Relaxed);
            self.is_there.store(begin.saturating_sub(last) < Self::CLOSE, Ordering::Relaxed);
        }
        if self.is_there.load(Ordering::Relaxed) {
            let is_over = |_: &u32| now().saturating_sub(begin) >= Self::REST;
            (0..Self::MOST_TURNS).take_while(|turn| !is_over(turn)).for_each(|_| {
                (0..16).for_each(|_| std::hint::spin_loop());
            });
        } else {
            (0..1u32 << looks.min(Self::LONGEST_SPIN)).for_each(|_| std::hint::spin_loop());
        }
    }
}

impl Machine {
    /// Default of [`lock_slice`](Self::lock_slice).
    pub(crate) const LOCK_SLICE: Duration = Duration::from_millis(5);
    /// Default of [`doorbell_slice`](Self::doorbell_slice).
    pub(crate) const DOORBELL_SLICE: Duration = Duration::from_millis(100);
}

impl Env for Machine {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    /// Longer than an undisturbed holder takes, and than its cache lines take to come over, several times.
    const SPINS: u32 = 10;

    #[inline]
    fn load32(&self, word: &AtomicU32, order: Ordering) -> u32 {
        word.load(order)
    }

    #[inline]
    fn store32(&self, word: &AtomicU32, value: u32, order: Ordering) {
        word.store(value, order);
    }

    #[inline]
    fn cas32(&self, word: &AtomicU32, from: u32, to: u32, order: Ordering) -> Result<u32, u32> {
        word.compare_exchange(from, to, order, Ordering::Relaxed)
    }

    #[inline]
    fn load64(&self, word: &AtomicU64, order: Ordering) -> u64 {
        word.load(order)
    }

    #[inline]
    fn store64(&self, word: &AtomicU64, value: u64, order: Ordering) {
        word.store(value, order);
    }

    #[inline]
    fn cas64(&self, word: &AtomicU64, from: u64, to: u64, order: Ordering) -> Result<u64, u64> {
        word.compare_exchange(from, to, order, Ordering::Relaxed)
    }

    #[inline]
    fn fence(&self, order: Ordering) {
        std::sync::atomic::fence(order);
    }

    #[inline(always)]
    fn light_fence(&self) {
        barrier::light();
    }

    #[cold]
    fn heavy_fence(&self) {
        barrier::heavy();
    }

    #[inline]
    fn pause(&self) {
        std::hint::spin_loop();
    }

    #[cold]
    fn rest(&self, looks: u32) {
        self.crowd.rest(looks, clock::monotonic);
    }

    #[cold]
    fn wait(&self, what: Waiting, word: &AtomicU32, seen: u32, deadline: u64) -> Waited {
        let slice = match what {
            // Nobody may know that we sleep.
            Waiting::Lock if barrier::is_blind() => self.lock_slice.min(BLIND_NANOS),
            Waiting::Lock => self.lock_slice,
            Waiting::Doorbell => self.doorbell_slice,
        };
        // An absolute end, so that signals do not stretch the slice.
        let mut now = clock::monotonic();
        let end = deadline.min(now.saturating_add(slice));
        loop {
            match futex::wait(word, seen, end.saturating_sub(now)) {
                futex::Ended::Time => return Waited::SliceOver,
                futex::Ended::Signal => now = clock::monotonic(),
                futex::Ended::Woken => return Waited::Woken,
            }
        }
    }

    #[cold]
    fn wake_one(&self, word: &AtomicU32) -> bool {
        futex::wake(word, 1) > 0
    }

    #[cold]
    fn wake_all(&self, word: &AtomicU32) {
        futex::wake(word, i32::MAX);
    }

    #[inline(always)]
    fn free(&self, lock: &AtomicU32, mine: u32) -> bool {
        let is_ours = lock.load(Ordering::Relaxed) == mine;
        if is_ours {
            lock.store(0, Ordering::Release);
        }
        is_ours
    }

    #[cold]
    fn free_and_wake(&self, lock: &AtomicU32, doorbell: &AtomicU32, wakes: Wakes) -> bool {
        let count = if wakes == Wakes::One { 1 } else { i32::MAX };
        let woken = futex::clear_and_wake(lock, doorbell, count)
            .unwrap_or_else(|| wake_then_free(lock, doorbell, |word| futex::wake(word, count)));
        woken > 0
    }

    #[cold]
    fn slot_is_free(&self, slot: u32) -> bool {
        self.descriptors.as_ref().is_some_and(|descriptors| descriptors.is_free(slot))
    }

    #[inline]
    fn now(&self) -> u64 {
        clock::monotonic()
    }
}

/// The same in steps, for a kernel without that call. The doorbell first: if we die between the two, whoever takes the
/// lock from us rings again.
fn wake_then_free(lock: &AtomicU32, doorbell: &AtomicU32, wake: impl Fn(&AtomicU32) -> usize) -> usize {
    let woken = wake(doorbell);
    lock.store(0, Ordering::Release);
    woken
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// How often the clock is asked in the course of a rest, by a clock that goes on by so much each time.
    fn asked(crowd: &Crowd, looks: u32, step: u64, from: u64) -> u64 {
        let times = Cell::new(0);
        crowd.rest(looks, || {
            times.set(times.get() + 1);
            from + step * times.get()
        });
        times.get()
    }

    #[test]
    fn a_rest_ends_whatever_the_clock_does() {
        let crowd = Crowd::default();
        let much_later = 10 * Crowd::CLOSE;
        assert_eq!(asked(&crowd, 0, 1, much_later), 1, "the first wait is no crowd");
        assert!(asked(&crowd, 0, Crowd::REST / 4, much_later) < 10, "as long as it says");
        assert!(asked(&crowd, 1, Crowd::REST, much_later) < 10);
        for stands in [0, much_later] {
            assert!(
                asked(&crowd, 0, 0, stands) < 2 * u64::from(Crowd::MOST_TURNS),
                "a clock that stands still"
            );
        }
        assert_eq!(asked(&crowd, 0, 1, 2 * much_later), 1, "a wait long after is no crowd");
    }

    #[test]
    fn without_one_call_for_both_the_doorbell_is_rung_before_the_lock_is_free() {
        let (lock, doorbell) = (AtomicU32::new(5), AtomicU32::new(7));
        let wakes = RefCell::new(Vec::new());
        let woken = wake_then_free(&lock, &doorbell, |word| {
            let which = if std::ptr::eq(word, &lock) { "lock" } else { "doorbell" };
            wakes.borrow_mut().push((which, lock.load(Ordering::Relaxed)));
            3
        });
        assert_eq!(woken, 3);
        assert_eq!(wakes.into_inner(), [("doorbell", 5)], "which word is rung, and what the lock is then");
        assert_eq!((lock.into_inner(), doorbell.into_inner()), (0, 7));
    }
}
