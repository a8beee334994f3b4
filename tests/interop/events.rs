//! The crash-proof event behind the traits of the `raw_sync` crate.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use limitset::Segment;
use limitset::interop::{CrashProofEvent, EventError};
use raw_sync::Timeout;
use raw_sync::events::{Event, EventImpl, EventInit, EventState};

use super::support::{Random, TempName, Worker, depth, listen, say};
use super::victim::{self, Victim};

/// Each spends this long at most before it is killed.
const MOST_MICROS: u64 = 1_500;
const AT_ONCE: Timeout = Timeout::Val(Duration::ZERO);

fn create(name: &TempName) -> Segment {
    let options = Segment::options().slots(16).waiters(0).words("event", 16).words("counts", 4);
    options.create(name).unwrap()
}

fn place(segment: &Segment) -> *mut u8 {
    segment.words("event").unwrap().as_ptr().cast_mut().cast()
}

fn new(segment: &Segment, auto_reset: bool) -> Box<dyn EventImpl> {
    // SAFETY: words of a segment that stays attached as long as the event is used; for the event alone.
    unsafe { CrashProofEvent::new(place(segment), auto_reset) }.unwrap().0
}

fn existing(segment: &Segment) -> Box<dyn EventImpl> {
    // SAFETY: as in `new`.
    unsafe { CrashProofEvent::from_existing(place(segment)) }.unwrap().0
}

fn error_of(result: Result<(), Box<dyn std::error::Error>>) -> EventError {
    *result.unwrap_err().downcast().unwrap()
}

fn is_signalled(event: &dyn EventImpl) -> bool {
    event.wait(AT_ONCE).is_ok()
}

/// The same program with both: ours can stand where theirs stood.
pub(crate) fn drop_in() {
    fn program<E: EventInit>(memory: *mut u8) {
        for auto_reset in [true, false] {
            // SAFETY: 128 bytes of the caller, which are enough for either, for this event alone.
            let (event, used) = unsafe { E::new(memory, auto_reset) }.unwrap();
            // SAFETY: as above.
            let (other, same) = unsafe { E::from_existing(memory) }.unwrap();
            assert_eq!(used, same);
            event.set(EventState::Signaled).unwrap();
            event.set(EventState::Signaled).unwrap();
            other.wait(Timeout::Infinite).unwrap();
            // A whole second: with a fraction, theirs may build an invalid time.
            let again = other.wait(Timeout::Val(Duration::from_secs(1)));
            assert_eq!(again.is_err(), auto_reset, "two sets are one signal");
            event.set(EventState::Signaled).unwrap();
            event.set(EventState::Clear).unwrap();
            assert!(other.wait(Timeout::Val(Duration::from_secs(1))).is_err());
        }
    }
    let name = TempName::new();
    let segment = create(&name);
    program::<CrashProofEvent>(place(&segment));
    program::<Event>(place(&segment));
}

pub(crate) fn timeouts() {
    let segment = Segment::options().slots(1).waiters(0).words("event", 16).anonymous().unwrap();
    let event = new(&segment, true);
    for waited in [Duration::ZERO, Duration::from_millis(3), Duration::from_millis(250)] {
        let error = error_of(event.wait(Timeout::Val(waited)));
        assert_eq!(error, EventError::TimedOut { waited });
    }
    event.set(EventState::Signaled).unwrap();
    event.wait(Timeout::Val(Duration::MAX)).unwrap();
    event.set(EventState::Signaled).unwrap();
    event.wait(AT_ONCE).unwrap();
    assert!(!is_signalled(&*event));
}

pub(crate) fn places() {
    let segment = Segment::options().slots(1).waiters(0).words("event", 16).anonymous().unwrap();
    for askew in 0..8 {
        let at = place(&segment).wrapping_add(askew);
        // SAFETY: as in `new`, and far from the end of the words.
        let result = unsafe { CrashProofEvent::from_existing(at) };
        let fresh: EventError = *result.map(|_| ()).unwrap_err().downcast().unwrap();
        assert_eq!(fresh, EventError::NotAnEvent { found: [0; 4] });
        // SAFETY: as above.
        let (event, used) = unsafe { CrashProofEvent::new(at, false) }.unwrap();
        assert_eq!(used, CrashProofEvent::size_of(Some(at)));
        assert!(used <= CrashProofEvent::size_of(None));
        assert_eq!(used, askew.next_multiple_of(4) - askew + 8);
        event.set(EventState::Signaled).unwrap();
        // SAFETY: as above.
        let (event, _) = unsafe { CrashProofEvent::from_existing(at) }.unwrap();
        assert!(is_signalled(&*event) && is_signalled(&*event), "the kind is remembered");
        segment.words("event").unwrap().iter().for_each(|word| word.store(0, SeqCst));
    }
    // SAFETY: a null address is refused before it is used.
    let null = unsafe { CrashProofEvent::new(std::ptr::null_mut(), true) };
    assert_eq!(*null.map(|_| ()).unwrap_err().downcast::<EventError>().unwrap(), EventError::Null);
}

/// Waits once per line it is sent.
pub(crate) fn wait_role(arguments: &[String]) {
    let segment = Segment::attach(&arguments[0]).unwrap();
    let event = existing(&segment);
    loop {
        say("waiting");
        event.wait(Timeout::Infinite).unwrap();
        say("signalled");
        listen();
    }
}

pub(crate) fn manual_reset() {
    let name = TempName::new();
    let segment = create(&name);
    let event = new(&segment, false);
    let mut workers: Vec<_> = (0..3).map(|_| Worker::start("event_wait", &[&name.0])).collect();
    for _ in 0..20 {
        workers.iter_mut().for_each(|worker| worker.expect("waiting"));
        workers.iter().for_each(Worker::wait_until_asleep);
        event.set(EventState::Signaled).unwrap();
        event.set(EventState::Clear).unwrap();
        workers.iter_mut().for_each(|worker| worker.expect("signalled"));
        workers.iter_mut().for_each(|worker| worker.tell("again"));
    }
    event.set(EventState::Signaled).unwrap();
    for _ in 0..3 {
        workers.iter_mut().for_each(|worker| worker.expect("waiting"));
        workers.iter_mut().for_each(|worker| worker.expect("signalled"));
        workers.iter_mut().for_each(|worker| worker.tell("again"));
    }
}

/// Counts each signal it gets.
pub(crate) fn count_role(arguments: &[String]) {
    let segment = Segment::attach(&arguments[0]).unwrap();
    let event = existing(&segment);
    let counts = segment.words("counts").unwrap();
    say("ready");
    loop {
        event.wait(Timeout::Infinite).unwrap();
        counts[0].fetch_add(1, SeqCst);
    }
}

pub(crate) fn auto_reset() {
    let name = TempName::new();
    let segment = create(&name);
    let event = new(&segment, true);
    let mut workers: Vec<_> = (0..3).map(|_| Worker::start("event_count", &[&name.0])).collect();
    workers.iter_mut().for_each(|worker| worker.expect("ready"));
    let counted = &segment.words("counts").unwrap()[0];
    let sets = depth(5_000, 100_000);
    for set in 0..sets {
        event.set(EventState::Signaled).unwrap();
        while counted.load(SeqCst) == set {
            std::thread::yield_now();
        }
    }
    workers.iter().for_each(Worker::wait_until_asleep);
    assert_eq!(counted.load(SeqCst), sets, "one for each set, and no more");
    assert!(!is_signalled(&*event));
}

/// Sets or waits as fast as it can, until killed.
pub(crate) fn loop_role(arguments: &[String]) {
    let segment = Segment::attach(&arguments[0]).unwrap();
    let event = existing(&segment);
    say("ready");
    loop {
        match arguments[1].as_str() {
            "set" => event.set(EventState::Signaled).unwrap(),
            _ => event.wait(Timeout::Infinite).unwrap(),
        }
    }
}

pub(crate) fn killed() {
    let name = TempName::new();
    let segment = create(&name);
    let event = new(&segment, true);
    let mut random = Random::new(11);
    let mut survivor = Worker::start("event_wait", &[&name.0]);
    for round in 0..depth(150, 2_000) {
        survivor.expect("waiting");
        // With and without a setter among the victims: then several wait, and one of them is woken and killed.
        let roles = if round % 2 == 0 { ["set", "wait", "wait"] } else { ["wait", "wait", "wait"] };
        let mut victims = roles.map(|what| Worker::start("event_loop", &[&name.0, what]));
        victims.iter_mut().for_each(|victim| victim.expect("ready"));
        if round % 2 == 1 {
            victims.iter().for_each(Worker::wait_until_asleep);
            event.set(EventState::Signaled).unwrap();
        }
        std::thread::sleep(Duration::from_micros(random.below(MOST_MICROS)));
        let first = usize::try_from(random.below(3)).unwrap();
        victims.rotate_left(first);
        victims.iter_mut().for_each(Worker::kill);
        // Perhaps the survivor has had one already; if a victim took it along, here is another.
        event.set(EventState::Signaled).unwrap();
        survivor.expect("signalled");
        survivor.tell("again");
    }
}

/// Sets or waits once, instruction by instruction.
pub(crate) fn stepped_role(arguments: &[String]) {
    // Once elsewhere, so that the run below has no first-time work of the loader in it.
    let options = Segment::options().slots(1).waiters(0).words("event", 16);
    let elsewhere = options.private().unwrap();
    let segment = Segment::attach(&arguments[0]).unwrap();
    let [practice, event] = [new(&elsewhere, true), existing(&segment)];
    for (event, stop) in [(practice, false), (event, true)] {
        if stop {
            victim::stop_here();
        }
        match arguments[1].as_str() {
            "set" => event.set(EventState::Signaled).unwrap(),
            _ => {
                let _ = event.wait(AT_ONCE);
            }
        }
    }
    victim::leave();
}

/// Lets a victim run that many instructions of one call and kills it. True if it had finished; none if this
/// machine does not allow tracing.
fn kill_after(instructions: u64, name: &TempName, call: &str) -> Option<bool> {
    let mut victim = Victim::start("event_stepped", &[&name.0, call])?;
    let is_over = (0..instructions).any(|_| !victim.step());
    victim.kill();
    Some(is_over)
}

pub(crate) fn setter_stepped() {
    let name = TempName::new();
    let segment = create(&name);
    let event = new(&segment, true);
    let word = &segment.words("event").unwrap()[0];
    let mut sleeper = Worker::start("event_wait", &[&name.0]);
    let (mut before_store, mut after_store) = (0, 0);
    loop {
        sleeper.expect("waiting");
        sleeper.wait_until_asleep();
        let start = word.load(SeqCst);
        let Some(is_over) = kill_after(before_store + after_store, &name, "set") else {
            return println!("SKIPPED setters killed at any instruction: tracing is not allowed here");
        };
        // Sets are counted, so this tells even if the sleeper has been here already.
        if word.load(SeqCst) == start {
            assert_eq!(after_store, 0);
            before_store += 1;
            event.set(EventState::Signaled).unwrap();
        } else {
            after_store += 1;
        }
        sleeper.expect("signalled");
        if is_over {
            break;
        }
        sleeper.tell("again");
    }
    println!("setters killed at {before_store} instructions before their store and {after_store} after it");
    assert!(before_store > 1 && after_store > 1);
}

pub(crate) fn waiter_stepped() {
    let name = TempName::new();
    let segment = create(&name);
    let event = new(&segment, true);
    let (mut instructions, mut taken_along) = (0, 0);
    loop {
        event.set(EventState::Signaled).unwrap();
        let Some(is_over) = kill_after(instructions, &name, "wait") else {
            return println!("SKIPPED waiters killed at any instruction: tracing is not allowed here");
        };
        taken_along += u64::from(!is_signalled(&*event));
        event.set(EventState::Signaled).unwrap();
        event.wait(Timeout::Infinite).unwrap();
        assert!(!is_signalled(&*event), "one signal, one waiter");
        if is_over {
            break;
        }
        instructions += 1;
    }
    println!("waiters killed at {instructions} instructions; {taken_along} took the signal along");
    assert!(0 < taken_along && taken_along < instructions);
}
