//! Forks at the instructions of a first attach.
//!
//! A thread steps itself through its first attach: the processor traps after each instruction. At every so many of them it
//! stands still, and the first thread makes a child by the bare system call, which waits for nothing. So the child finds
//! the memory as it is between two instructions, and must be able to attach for itself.
//!
//! Only instructions of this program count: inside the C library the thread could hold the lock of `malloc`, which such a
//! child cannot know to be free.

use std::ops::Range;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::Duration;

use limitset::error::AttachError;
use limitset::{Segment, SegmentOptions};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::forks::Forked;
use crate::support::{self, TempName, Worker, depth, say};
use crate::{beware_of_hanging, nap_until};

/// The trap flag of the processor.
const TRAP: i32 = 0x100;

/// Where the code of this program is.
static CODE: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
/// Instructions of this program that were done.
static DONE: AtomicU64 = AtomicU64::new(0);
/// Stand still at every so many of them.
static STRIDE: AtomicU64 = AtomicU64::new(0);
static STANDS: AtomicBool = AtomicBool::new(false);
static IS_OVER: AtomicBool = AtomicBool::new(false);

pub(crate) fn test() {
    if cfg!(not(target_arch = "x86_64")) {
        println!("SKIPPED forks at the instructions of a first attach: written for x86_64");
        return;
    }
    let name = TempName::new();
    let segment = options().create(&name).unwrap();
    // Prime, so that loops do not fall into step with it.
    let stride = if depth(0, 1) == 0 { 211 } else { 13 };
    let mut worker = Worker::start("instructions", &[&name.0, &stride.to_string()]);
    let said = worker.hear();
    worker.wait_for_end();
    let numbers: Vec<u64> = said.split(' ').map(|number| number.parse().unwrap()).collect();
    let (instructions, children) = (numbers[0], numbers[1]);
    assert!(children > 100, "{children} children at {instructions} instructions");
    let result = format!("{children} children at {instructions} instructions, all could attach");
    support::proof("4", "bare clones between instructions of a first attach", &result);
    drop(segment);
    Segment::remove(&name).unwrap();
}

pub(crate) fn role(arguments: &[String]) {
    let name = arguments[0].clone();
    STRIDE.store(arguments[1].parse().unwrap(), SeqCst);
    let code = code();
    CODE[0].store(code.start, SeqCst);
    CODE[1].store(code.end, SeqCst);
    let action = SigAction::new(SigHandler::SigAction(on_trap), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler only uses atomics and sleeps.
    unsafe { sigaction(Signal::SIGTRAP, &action) }.unwrap();
    let attacher = std::thread::spawn(move || {
        stepped(|| {
            // The second is registered beside the first; both are unregistered.
            drop((Segment::attach(&name).unwrap(), Segment::attach(&name).unwrap()));
        });
        IS_OVER.store(true, SeqCst);
    });
    let mut children = 0;
    loop {
        nap_until(|| STANDS.load(SeqCst) || IS_OVER.load(SeqCst));
        if IS_OVER.load(SeqCst) {
            break;
        }
        let child = Forked::raw(|| ask_in_child(&arguments[0]));
        crate::judge(child.wait(), &format!("forked at instruction {}", DONE.load(SeqCst)));
        children += 1;
        STANDS.store(false, SeqCst);
    }
    attacher.join().unwrap();
    say(&format!("{} {children}", DONE.load(SeqCst)));
}

fn options() -> SegmentOptions {
    Segment::options().slots(4).semaphore("db", 100).patience(Duration::from_millis(1))
}

fn ask_in_child(name: &str) {
    beware_of_hanging();
    match options().attach(name) {
        Ok(segment) => drop(segment.semaphore("db").unwrap().try_acquire(1).unwrap()),
        // Its parent stands still while it enrols. That is an answer, not a hang.
        Err(AttachError::Busy { .. }) => {}
        Err(other) => panic!("{other}"),
    }
}

/// The addresses of this program's code.
fn code() -> Range<usize> {
    let here = (code as fn() -> Range<usize> as *const ()).addr();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ranges = maps.lines().map(|line| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        usize::from_str_radix(start, 16).unwrap()..usize::from_str_radix(end, 16).unwrap()
    });
    ranges.into_iter().find(|range| range.contains(&here)).unwrap()
}

extern "C" fn on_trap(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if !(CODE[0].load(SeqCst)..CODE[1].load(SeqCst)).contains(&instruction_of(context)) {
        return;
    }
    let done = DONE.fetch_add(1, SeqCst);
    if done.is_multiple_of(STRIDE.load(SeqCst)) {
        STANDS.store(true, SeqCst);
        nap_until(|| !STANDS.load(SeqCst));
    }
}

#[cfg(target_arch = "x86_64")]
fn instruction_of(context: *mut libc::c_void) -> usize {
    // SAFETY: the kernel passes a live context to a handler that was installed with SA_SIGINFO.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    usize::try_from(context.uc_mcontext.gregs[usize::try_from(libc::REG_RIP).unwrap()]).unwrap()
}

/// Traps after every instruction of `work`.
#[cfg(target_arch = "x86_64")]
fn stepped(work: impl FnOnce()) {
    // SAFETY: sets a flag of the processor, whose signal has a handler; memory and registers stay as they are.
    unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], {trap}", "popfq", trap = const TRAP) };
    work();
    // SAFETY: clears the flag.
    unsafe { std::arch::asm!("pushfq", "and qword ptr [rsp], {rest}", "popfq", rest = const !TRAP) };
}

#[cfg(not(target_arch = "x86_64"))]
fn instruction_of(_: *mut libc::c_void) -> usize {
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn stepped(work: impl FnOnce()) {
    work();
}
