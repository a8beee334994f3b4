//! Errors: what was found, what was expected, what to do.
//!
//! One enum per kind of operation. Nothing here is a refusal by a limit: those are answers.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// A segment name against the rules.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "segment name {name:?} {why}; a name is 1-200 of A-Z a-z 0-9 . _ - and does not start with . or -, \
     and anything with a / is a file path"
)]
pub struct BadName {
    /// The name given.
    pub name: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// A creation option out of bounds.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum BadOption {
    /// A number out of bounds.
    #[error("{found} {what} asked for; a segment has {least} to {most}")]
    Count { what: &'static str, found: u32, least: u32, most: u32 },
    /// More labelled regions than there is room for.
    #[error("{found} labelled regions asked for; a segment has room for {most}: use several segments")]
    TooManyRegions { found: usize, most: usize },
    /// A label that is empty, too long, or has a zero byte.
    #[error("region label {label:?} must have 1 to {most} bytes and no zero byte")]
    Label { label: String, most: usize },
    /// Two regions with one label.
    #[error("region label {label:?} is used twice; labels are unique within a segment")]
    LabelTwice { label: String },
    /// A region of a size out of bounds.
    #[error("region {label:?} was given size {found}; it must be {least} to {most}")]
    RegionSize { label: String, found: u64, least: u64, most: u64 },
    /// A segment that would be too large.
    #[error("the segment would have {found} bytes; at most {most} are allowed: ask for less")]
    TooLarge { found: u64, most: u64 },
    /// A file mode that its owner could not use.
    #[error("mode {found:o} is not a file mode that lets its owner read and write; use 600 or 660")]
    Mode { found: u32 },
}

/// Bytes that are not a segment this build can use.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum Malformed {
    /// Shorter than any segment.
    #[error(
        "it has {found} bytes, a segment at least {expected}: not a segment, or cut short; use \
        another name, or remove it"
    )]
    TooShort { found: u64, expected: u64 },
    /// It does not begin as a segment does.
    #[error(
        "it starts with {:?}, a segment with \"LIMITSET\": another program's file; use another name",
        String::from_utf8_lossy(found)
    )]
    Magic { found: [u8; 8] },
    /// A mapping that is being adopted.
    #[error(
        "it is being adopted, or whoever adopted it was killed: try again, and if that does not help, adopt \
        it again or remove it"
    )]
    Unfinished,
    /// A mapping to be adopted in which something stands already.
    #[error(
        "byte {offset} is not zero, and it is no segment: another program uses it; adopt a mapping that \
        nobody has written to"
    )]
    InUse { offset: u64 },
    /// Of a machine of the other byte order.
    #[error(
        "its byte order stamp is {found:#010x}, this machine's {expected:#010x}: made on a machine of \
        the other byte order; create it anew"
    )]
    ByteOrder { found: u32, expected: u32 },
    /// Of another version of the format.
    #[error(
        "it has format version {found}, this build reads {expected}: use one version of limitset \
        in all processes, or remove the segment when nobody uses it"
    )]
    FormatVersion { found: u32, expected: u32 },
    /// Of a machine with other sizes.
    #[error(
        "it has {word_bytes}-byte words and {line_bytes}-byte lines, this build 8 and 128: made for \
        another kind of machine; create it anew"
    )]
    Machine { word_bytes: u32, line_bytes: u32 },
    /// Of a build with another layout.
    #[error(
        "its layout hash is {found:#x}, this build's {expected:#x}: made by a build with another \
        layout; use one version of limitset in all processes"
    )]
    LayoutHash { found: u64, expected: u64 },
    /// The header does not fit its checksum.
    #[error("its header has checksum {found:#x}, its bytes give {expected:#x}: damaged; remove it")]
    Checksum { found: u64, expected: u64 },
    /// The file does not have the size that its header says.
    #[error("the file has {found} bytes, its header says {expected}: truncated or extended; remove it")]
    Size { found: u64, expected: u64 },
    /// It counts time by an unknown clock.
    #[error(
        "it counts time by clock {found}, which this build does not know: use one version of limitset in all \
        processes"
    )]
    Clock { found: u32 },
    /// A number in the header is out of bounds.
    #[error("its header says {found} {what}, possible are {least} to {most}: damaged; remove it")]
    Count { what: &'static str, found: u32, least: u32, most: u32 },
    /// A region is not where or what it can be.
    #[error("region {index} (kind {kind}) {what}: damaged; remove it")]
    Region { index: usize, kind: u32, what: &'static str },
    /// A region that every segment has is missing.
    #[error("it lacks one of the regions slots, state, waiters: damaged; remove it")]
    RegionMissing,
    /// What the set was declared as cannot be read.
    #[error("its definition of limits {what}: damaged; remove it")]
    Definition { what: &'static str },
}

/// Why a segment could not be attached to, or no longer be used by this process.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum AttachError {
    /// The name is against the rules.
    #[error(transparent)]
    Name(#[from] BadName),
    /// There is no such segment.
    #[error("there is no segment {}: create it first, or open it with its definition", path.display())]
    NotFound { path: PathBuf },
    /// There is something else than a file.
    #[error("{} is {found}, a segment is a regular file: use another name", path.display())]
    NotAFile { path: PathBuf, found: &'static str },
    /// This user may not.
    #[error("this user may not {access} {}: ask its owner to do it, or for mode 660 and a common group",
        path.display())]
    Permission { path: PathBuf, access: &'static str },
    /// The file system does not share memory or locks reliably.
    #[error("{} is on {found}, where locks and mappings are not shared reliably: use /dev/shm or a local \
        file system", path.display())]
    FileSystem { path: PathBuf, found: &'static str },
    /// It belongs to another user.
    #[error("{} belongs to user {found}, this process runs as {expected}: it may have been planted there; \
        allow it with any_owner if it is meant to be shared", path.display())]
    Owner { path: PathBuf, found: u32, expected: u32 },
    /// The bytes are no segment that this build can use.
    #[error("{} cannot be used: {what}", path.display())]
    Malformed { path: PathBuf, what: Malformed },
    /// It was declared otherwise.
    #[error("{} has {found}, this program asks for {expected}: give both the same definition, or attach \
        without one", path.display())]
    Differs { path: PathBuf, found: String, expected: String },
    /// It is a segment without a set of limits.
    #[error("{} keeps no set of limits: it is a plain segment; open it as one, or use another name",
        path.display())]
    NotASet { path: PathBuf },
    /// Another process was in the middle of opening it for too long.
    #[error("{} was still being opened by another process after {waited:?}: try again, or find out who is \
        stopped there", path.display())]
    Busy { path: PathBuf, waited: Duration },
    /// All slots are taken by living processes.
    #[error("all {slots} participant slots of {} are taken by living processes: create it with more slots",
        path.display())]
    TooManyParticipants { path: PathBuf, slots: u32 },
    /// It is in use where the clock reads differently.
    #[error("{} is in use in time namespace {found}, this process is in {expected}, where the clock differs: \
        run all its users in one time namespace", path.display())]
    TimeNamespace { path: PathBuf, found: u64, expected: u64 },
    /// It was removed.
    #[error("{} was removed: open it again", path.display())]
    Removed { path: PathBuf },
    /// Words in it make no sense.
    #[error("{} is damaged: {what}; stop its users and remove it", path.display())]
    Damaged { path: PathBuf, what: Damage },
    /// It is private memory of the process that forked this one.
    #[error(
        "this segment is private memory and was not carried over a fork: create it in each process, or \
        use a named or anonymous one"
    )]
    NotShared,
    /// The kernel is too old.
    #[error("this kernel cannot {what}: limitset needs Linux 4.14 or newer")]
    Unsupported { what: &'static str },
    /// The system reported an error.
    #[error("could not {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

/// Why a segment could not be created.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum CreateError {
    /// An option out of bounds.
    #[error(transparent)]
    Option(#[from] BadOption),
    /// There is one of that name.
    #[error("{} exists already: attach to it, or remove it first", path.display())]
    Exists { path: PathBuf },
    /// The file system is full.
    #[error("the file system of {} has no room for {needed} bytes: make room, or ask for fewer slots, \
        waiters and items", path.display())]
    NoSpace { path: PathBuf, needed: u64 },
    /// The mapping to be adopted is too small.
    #[error("{} has {found} bytes, this definition needs {needed}: make the mapping that large, or ask for \
        fewer slots, waiters and items", path.display())]
    TooSmall { path: PathBuf, found: u64, needed: u64 },
    /// It could not be given to the group.
    #[error("could not give {} to group {group}: {source}; the creator must belong to it", path.display())]
    Group { path: PathBuf, group: u32, source: io::Error },
    /// The segment is there (made now, or by somebody else) but could not be attached to.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

impl From<BadName> for CreateError {
    fn from(bad: BadName) -> Self {
        Self::Attach(bad.into())
    }
}

/// Words in a segment that no correct participant can have written.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum Damage {
    /// The undo journal names what is not there.
    #[error("its undo journal names entry or word {found}, the last possible is {most}")]
    Journal { found: u64, most: u64 },
    /// The lock was found in other hands.
    #[error("the lock was taken from this process while it was alive")]
    Deposed,
    /// A word beyond the end.
    #[error("word {index} of a block with {words} words was asked for")]
    OutOfRange { index: usize, words: usize },
}

/// Why a mutex or semaphore could not do what was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum SyncError {
    /// The segment has no such region, or one of another kind.
    #[error("{found}, not a {expected}: check the label and the definition of the segment")]
    NoSuchRegion { found: String, expected: &'static str },
    /// Somebody who is alive held the lock for too long.
    #[error("the lock was held by another participant (slot {slot}, process {pid}) when time was up")]
    Busy { slot: u32, pid: u64 },
    /// Not enough permits came free in time.
    #[error("{wanted} permits wanted, {available} free when time was up")]
    TimedOut { wanted: u64, available: u64 },
    /// Not enough permits are free now.
    #[error("{wanted} permits wanted, {available} free")]
    NotAvailable { wanted: u64, available: u64 },
    /// There are not that many permits in all.
    #[error("{wanted} permits wanted, but there are only {capacity} in all: it can never succeed")]
    Never { wanted: u64, capacity: u64 },
    /// No permit was asked for.
    #[error("0 permits were asked for: ask for 1 or more")]
    Nothing,
    /// A word beyond those that the mutex guards.
    #[error("word {index} was asked for, the mutex guards {words}")]
    OutOfRange { index: usize, words: usize },
    /// One update changed more words than can be undone.
    #[error("one update changed more than {most} words: split it")]
    TooManyChanges { most: usize },
    /// The guard belongs to the process that forked this one.
    #[error("this guard was made before a fork and belongs to the parent process: take the lock anew")]
    Forked,
    /// The guard or permit was returned when this process [took a lent slot lock back](crate::LentLife::release).
    #[error("this was returned when the process took its lent slot lock back: take it anew")]
    Returned,
    /// The segment was removed.
    #[error("the segment was removed: open it again")]
    Removed,
    /// Words in the segment make no sense.
    #[error("the segment is damaged: {0}; stop its users and remove it")]
    Damaged(#[from] Damage),
    /// This process cannot take part.
    #[error("this process could not enrol: {0}")]
    Enrol(#[from] AttachError),
}
