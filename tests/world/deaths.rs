//! Deaths in a family of processes: who is dead, who only looks dead, and who goes on.

use std::fs;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use limitset::{Segment, SegmentOptions};
use nix::unistd::Pid;

use crate::forks::Forked;
use crate::support::{TempName, Worker, listen, say};
use crate::{Skipped, options};

/// Holds permits, and does one more thing.
#[expect(clippy::zombie_processes, reason = "killed before its children")]
pub(crate) fn hold_role(arguments: &[String]) {
    let segment = options().attach(&arguments[0]).unwrap();
    let _permit = segment.semaphore("db").unwrap().acquire(3).unwrap();
    match arguments[1].as_str() {
        "clone" => tell_of(Forked::raw(|| drop(listen())).pid()),
        // Programs that live until the test closes their input.
        "spawn" => {
            let cat = Command::new("cat").spawn().unwrap();
            tell_of(Pid::from_raw(i32::try_from(cat.id()).unwrap()));
        }
        "vfork" => tell_of(Forked::vforked(c"/bin/cat").pid()),
        "grow" => {
            let memory = vec![1u8; 1 << 30];
            say("grown");
            listen();
            drop(memory);
        }
        _ => unreachable!(),
    }
    // The child reads the same input; this process only waits for its end.
    loop {
        nix::unistd::pause();
    }
}

fn tell_of(child: Pid) {
    say(&child.to_string());
}

pub(crate) fn of_a_parent(how: &str) -> Result<(), Skipped> {
    let name = TempName::new();
    let segment = options().create(&name).unwrap();
    let db = segment.semaphore("db").unwrap();
    let mut worker = Worker::start("hold", &[&name.0, how]);
    let child = worker.hear();
    assert_eq!(db.reap().unwrap(), 0);
    worker.kill();
    db.acquire(4).unwrap().release().unwrap();
    assert!(!"ZX".contains(state_of(&child)), "the child lives, and is not taken for its parent");
    Ok(())
}

/// The letter for what a process does.
fn state_of(process: &str) -> char {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().trim_start().chars().next().unwrap()
}

pub(crate) fn of_a_large_process() -> Result<(), Skipped> {
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let kilobytes: u64 = available.trim().trim_end_matches(" kB").parse().unwrap();
    if kilobytes < 2 << 20 {
        return Err(format!("needs 2 GiB of memory, {kilobytes} kB are available"));
    }
    let name = TempName::new();
    let segment = options().create(&name).unwrap();
    let db = segment.semaphore("db").unwrap();
    let mut worker = Worker::start("hold", &[&name.0, "grow"]);
    worker.expect("grown");
    assert_eq!(db.reap().unwrap(), 0);
    worker.signal(nix::sys::signal::Signal::SIGKILL);
    // Not waited for: the permits return when the kernel is done with its memory.
    db.acquire(4).unwrap().release().unwrap();
    Ok(())
}

/// A process that goes on without its main thread.
pub(crate) fn headless_role(arguments: &[String]) {
    let name = arguments[0].clone();
    std::thread::spawn(move || {
        let segment = options().attach(&name).unwrap();
        let db = segment.semaphore("db").unwrap();
        let _permit = db.acquire(3).unwrap();
        say("holding");
        listen();
        // Whatever a process does with segments still works.
        Forked::new(|| drop(db.acquire(1).unwrap())).join();
        drop(options().attach(&name).unwrap());
        drop(options().anonymous().unwrap());
        let other = TempName::new();
        options().create(&other).unwrap().remove_here().unwrap();
        say("done");
        listen();
    });
    // SAFETY: ends this thread alone and runs nothing more of it, as `pthread_exit` would but without
    // unwinding, which must not pass through Rust. The stack stays until the process ends.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

pub(crate) fn of_a_main_thread() -> Result<(), Skipped> {
    let name = TempName::new();
    let segment = options().create(&name).unwrap();
    let db = segment.semaphore("db").unwrap();
    let mut worker = Worker::start("headless", &[&name.0]);
    worker.expect("holding");
    while state_of(&worker.pid().to_string()) != 'Z' {
        std::thread::yield_now();
    }
    assert_eq!(db.reap().unwrap(), 0, "it looks like a zombie and lives");
    assert_eq!(segment.participants().len(), 2);
    worker.tell("go on");
    worker.expect("done");
    assert_eq!(db.available().unwrap(), 1);
    worker.kill();
    db.acquire(4).unwrap().release().unwrap();
    Ok(())
}

/// Rung at least once in every slice, with children at work.
fn slow_bell() -> SegmentOptions {
    options().doorbell_slice(Duration::from_millis(500))
}

/// A parent with four permits, and three children that take and give one all the time.
pub(crate) fn brood_role(arguments: &[String]) {
    let segment = slow_bell().attach(&arguments[0]).unwrap();
    let (db, notes) = (segment.semaphore("eight").unwrap(), segment.words("notes").unwrap());
    let _permit = db.acquire(4).unwrap();
    for _ in 0..3 {
        Forked::new(|| {
            // Ends the process when the test closes its input.
            std::thread::spawn(listen);
            loop {
                let permit = db.acquire(1).unwrap();
                notes[0].fetch_add(1, Relaxed);
                permit.release().unwrap();
            }
        });
    }
    say("ready");
    loop {
        nix::unistd::pause();
    }
}

pub(crate) fn among_the_busy() -> Result<(), Skipped> {
    let name = TempName::new();
    let segment = slow_bell().semaphore("eight", 8).create(&name).unwrap();
    let (db, notes) = (segment.semaphore("eight").unwrap(), segment.words("notes").unwrap());
    let mut worker = Worker::start("brood", &[&name.0]);
    worker.expect("ready");
    let wait_for_work = |segment: &Segment| {
        let before = notes[0].load(Relaxed);
        while notes[0].load(Relaxed) < before + 500 {
            std::thread::yield_now();
        }
        assert_eq!(segment.participants().iter().filter(|it| it.pid != 0).count(), 4);
    };
    while segment.participants().len() < 5 {
        std::thread::yield_now();
    }
    worker.kill();
    wait_for_work(&segment);
    // Five are free once the dead parent's are back, however often the children ring the bell.
    db.acquire_timeout(5, Duration::from_secs(60)).unwrap().release().unwrap();
    wait_for_work(&segment);
    drop(worker);
    db.acquire(8).unwrap().release().unwrap();
    assert_eq!(db.statistics().unwrap().deposed, 0);
    Ok(())
}
