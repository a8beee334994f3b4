//! How long does it take to attach to a set, and how many bytes is a segment?

use std::os::unix::fs::MetadataExt;

use limitset::{Clock, Limit, LimitSet, Segment};

use crate::batches::{Plan, Row};
use crate::ours::{self, TempSet};
use crate::results::{Bench, Group};
use crate::sys::unique;

const QUESTION: &str = "How long does it take to attach to a set, and how many bytes is a segment?";

pub fn run(plan: Plan) -> Bench {
    let mut bench = Bench::measure("attach", QUESTION, vec![times()], plan, None);
    bench.remarks.push(sizes());
    bench
}

fn times() -> Group<Row> {
    let set = TempSet::new(ours::usual(), Clock::Monotonic);
    let (attached, opened) = (set.name.clone(), set.name.clone());
    let builder = LimitSet::builder().limits(ours::usual());
    let (again, create) = (builder.clone(), builder);
    let path = std::path::Path::new("/dev/shm").join(unique("plain"));
    std::fs::write(&path, vec![0; 1 << 16]).expect("a file in /dev/shm");
    let plain = Plain(path);
    let rows = vec![
        Row::ours("attach/attach", "`LimitSet::attach` and drop", move || {
            let _set = &set;
            drop(LimitSet::attach(&attached).expect("attached"));
        })
        .note("maps, checks, decodes the limits, enrols, detaches"),
        Row::ours("attach/open", "`builder.open` of an existing set and drop", move || {
            drop(again.open(&opened).expect("opened"));
        }),
        Row::ours("attach/create", "create, remove and drop", move || {
            let set = create.create(unique("created")).expect("created");
            set.remove().expect("removed");
        }),
        Row::rival("attach/plain", "open, map 64 KiB, read a byte, unmap", move || plain.map())
            .note("the minimum for sharing memory"),
    ];
    Group::new("Attaching", "attach/plain", rows)
}

/// A plain file in shared memory.
struct Plain(std::path::PathBuf);

impl Plain {
    fn map(&self) {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::options().read(true).write(true).open(&self.0).expect("the file");
        let (length, protection) = (1 << 16, libc::PROT_READ | libc::PROT_WRITE);
        let fd = file.as_raw_fd();
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED, "cannot map");
        // SAFETY: mapped, and as long as the file.
        std::hint::black_box(unsafe { at.cast::<u8>().read_volatile() });
        // SAFETY: mapped above.
        unsafe { libc::munmap(at, length) };
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // A file that stays behind does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn sizes() -> String {
    let mut text = String::from(
        "| segment | slots | bytes | of which in memory after a request |\n| --- | ---: | ---: | ---: |\n",
    );
    let many = |count: usize| (0..count).map(|index| ours::rate(&format!("rate-{index}"))).collect();
    let shapes: [(&str, Vec<Limit>, Option<u32>); 5] = [
        ("1 rate", vec![ours::call()], None),
        ("3 limits with a permit", ours::usual(), None),
        ("3 limits with a permit", ours::usual(), Some(16)),
        ("3 limits with a permit", ours::usual(), Some(4095)),
        ("16 rates", many(16), None),
    ];
    for (name, limits, slots) in shapes {
        let mut options = Segment::options();
        if let Some(slots) = slots {
            options = options.slots(slots);
        }
        let temp = TempSet::with(limits, Clock::Monotonic, options);
        ours::take_and_give(&temp.set, &ours::one_of_each(&temp.set));
        let path = Segment::path_of(&temp.name).expect("a path");
        let file = std::fs::metadata(path).expect("the segment's file");
        let slots = slots.map_or("256 (default)".to_owned(), |slots| slots.to_string());
        text += &format!("| {name} | {slots} | {} | {} |\n", file.len(), file.blocks() * 512);
    }
    text
}
