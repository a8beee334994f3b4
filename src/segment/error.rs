//! Errors of segments. A message states the failure, the cause, and a remedy.
//!
//! One enum per kind of operation. None of them is a denial by a limit: a denial is an answer, not an error of
//! the segment.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::code::Code;

pub use crate::format::error::{BadOption, Malformed};

/// A segment name against the rules.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "invalid segment name {name:?}: it {why}; use 1-200 of A-Z a-z 0-9 . _ -, not starting with . or -, or a file \
     path with a /"
)]
pub struct BadName {
    /// The name given.
    pub name: String,
    /// The rule that the name breaks.
    pub why: &'static str,
}

impl BadName {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        Code::BadName
    }
}

/// Why this process cannot attach to a segment, or can no longer use it.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum AttachError {
    /// The name is against the rules.
    #[error(transparent)]
    Name(#[from] BadName),
    /// No segment has this name.
    #[error("segment {} not found: create it first, or open it with its definition", path.display())]
    NotFound { path: PathBuf },
    /// The path does not lead to a regular file.
    #[error("cannot use {}: it is {found}, not a regular file; use another name", path.display())]
    NotAFile { path: PathBuf, found: &'static str },
    /// This user has no permission for the access.
    #[error("cannot {access} {}: this user has no permission; ask its owner to do it, or for mode 660 and a \
        common group", path.display())]
    Permission { path: PathBuf, access: &'static str },
    /// The file system does not share memory or locks reliably.
    #[error("cannot use {}: it is on {found}, which does not share locks and mappings reliably; use /dev/shm or a \
        local file system", path.display())]
    FileSystem { path: PathBuf, found: &'static str },
    /// The segment belongs to another user.
    #[error("cannot use {}: it belongs to user {found}, this process runs as user {expected}, and another user may \
        have planted it; allow it with any_owner if it is meant to be shared", path.display())]
    Owner { path: PathBuf, found: u32, expected: u32 },
    /// The bytes are not a segment that this build can use.
    #[error("cannot use {}: {what}", path.display())]
    Malformed { path: PathBuf, what: Malformed },
    /// The segment was created with another definition.
    #[error("cannot use {}: it has {found}, this program asks for {expected}; give both the same definition, or \
        attach without one", path.display())]
    Differs { path: PathBuf, found: String, expected: String },
    /// The segment contains no set of limits.
    #[error("cannot use {} as a set: it is a plain segment without limits; open it as a segment, or use another \
        name", path.display())]
    NotASet { path: PathBuf },
    /// Another process held the init lock for too long.
    #[error("cannot use {}: another process was still opening it after {waited:?}; try again, or look for a \
        stopped process", path.display())]
    Busy { path: PathBuf, waited: Duration },
    /// All slots are taken by living processes.
    #[error("cannot attach to {}: all {slots} participant slots are taken by living processes; create it with more \
        slots", path.display())]
    TooManyParticipants { path: PathBuf, slots: u32 },
    /// The segment is in use in another time namespace, where the clock reads differently.
    #[error("cannot attach to {}: it is in use in time namespace {found}, this process is in {expected}, where the \
        clock differs; run all its users in one time namespace", path.display())]
    TimeNamespace { path: PathBuf, found: u64, expected: u64 },
    /// The segment was removed.
    #[error("{} was removed: open it again", path.display())]
    Removed { path: PathBuf },
    /// The segment contains impossible values.
    #[error("{} is damaged: {what}; stop its users and remove it", path.display())]
    Damaged { path: PathBuf, what: Damage },
    /// The segment is private memory of the process that forked this one.
    #[error(
        "this segment is private memory of the parent process, and a fork does not share it: create one in each \
        process, or use a named or anonymous one"
    )]
    NotShared,
    /// The kernel is too old.
    #[error("this kernel cannot {what}: limitset needs Linux 4.14 or newer")]
    Unsupported { what: &'static str },
    /// The system reported an error.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

impl AttachError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Name(bad) => bad.code(),
            Self::NotFound { .. } => Code::NotFound,
            Self::NotAFile { .. } | Self::NotASet { .. } => Code::NotASet,
            Self::Permission { .. } => Code::Permission,
            Self::FileSystem { .. } => Code::FileSystem,
            Self::Owner { .. } => Code::OtherOwner,
            Self::Malformed { .. } => Code::Malformed,
            Self::Differs { .. } => Code::Differs,
            Self::Busy { .. } => Code::Busy,
            Self::TooManyParticipants { .. } => Code::TooManyParticipants,
            Self::TimeNamespace { .. } => Code::TimeNamespace,
            Self::Removed { .. } => Code::Removed,
            Self::Damaged { .. } => Code::Damaged,
            Self::NotShared => Code::NotShared,
            Self::Unsupported { .. } => Code::Unsupported,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => Code::Permission,
            Self::Io { .. } => Code::Io,
        }
    }
}

/// Why a segment could not be created.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum CreateError {
    /// An option is out of bounds.
    #[error(transparent)]
    Option(#[from] BadOption),
    /// A segment of that name exists.
    #[error("cannot create {}: it exists already; attach to it, or remove it first", path.display())]
    Exists { path: PathBuf },
    /// The file system is full.
    #[error("cannot create {}: its file system has no room for {needed} bytes; make room, or ask for fewer slots, \
        waiters and items", path.display())]
    NoSpace { path: PathBuf, needed: u64 },
    /// The mapping to be adopted is too small.
    #[error("cannot adopt {}: it has {found} bytes, this definition needs {needed}; make the mapping that large, or \
        ask for fewer slots, waiters and items", path.display())]
    TooSmall { path: PathBuf, found: u64, needed: u64 },
    /// The file could not be given to the group.
    #[error("cannot give {} to group {group}: {source}; the creator must belong to the group", path.display())]
    Group { path: PathBuf, group: u32, source: io::Error },
    /// The segment exists (created now, or by another process), but this process cannot attach to it.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

impl CreateError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Option(_) | Self::TooSmall { .. } => Code::BadSetting,
            Self::Exists { .. } => Code::Exists,
            Self::NoSpace { .. } => Code::NoSpace,
            Self::Group { .. } => Code::Permission,
            Self::Attach(error) => error.code(),
        }
    }
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
    /// The undo journal names an entry or a word that does not exist.
    #[error("its undo journal names entry or word {found}, the last possible is {most}")]
    Journal { found: u64, most: u64 },
    /// The lock was taken from a living holder.
    #[error("the lock was taken from this process while it was alive")]
    Deposed,
    /// A word beyond the end of its block was requested.
    #[error("word {index} was requested from a block of {words} words")]
    OutOfRange { index: usize, words: usize },
}

/// Why an operation on a mutex or a semaphore failed.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name every field")]
pub enum SyncError {
    /// The segment has no such region, or one of another kind.
    #[error("expected a {expected}, found {found}: check the label and the definition of the segment")]
    NoSuchRegion { found: String, expected: &'static str },
    /// A living participant held the lock for too long.
    #[error(
        "cannot take the lock: process {pid} (slot {slot}) held it for the whole lock timeout; try again, or check \
        whether that process is stopped"
    )]
    Busy { slot: u32, pid: u64 },
    /// Too few permits were released in time.
    #[error("timed out: {wanted} permits requested, {available} free; try again, or wait longer")]
    TimedOut { wanted: u64, available: u64 },
    /// Too few permits are free now.
    #[error("denied: {wanted} permits requested, {available} free; wait, or try again later")]
    NotAvailable { wanted: u64, available: u64 },
    /// The request exceeds the capacity of the semaphore.
    #[error("{wanted} permits requested, the semaphore has only {capacity} in all: ask for fewer")]
    Never { wanted: u64, capacity: u64 },
    /// The request was for 0 permits.
    #[error("0 permits requested: ask for 1 or more")]
    Nothing,
    /// The index is beyond the words that the mutex guards.
    #[error("word {index} requested, the mutex guards {words} words: use a smaller index")]
    OutOfRange { index: usize, words: usize },
    /// One update changed more words than can be undone.
    #[error("one update changed more than {most} words: split it")]
    TooManyChanges { most: usize },
    /// The guard belongs to the process that forked this one.
    #[error("this guard was made before a fork and belongs to the parent process: lock again")]
    Forked,
    /// The guard or permit was returned when this process [took a lent slot lock back](crate::LentLife::release).
    #[error("this was returned when the process took its lent slot lock back: take it anew")]
    Returned,
    /// The segment was removed.
    #[error("the segment was removed: open it again")]
    Removed,
    /// The segment contains impossible values.
    #[error("the segment is damaged: {0}; stop its users and remove it")]
    Damaged(#[from] Damage),
    /// This process cannot become a participant.
    #[error("cannot enrol this process: {0}")]
    Enrol(#[from] AttachError),
}

impl SyncError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::NoSuchRegion { .. } => Code::NoSuchRegion,
            Self::Busy { .. } => Code::Unavailable,
            Self::TimedOut { .. } => Code::TimedOut,
            Self::NotAvailable { .. } => Code::DeniedPermits,
            Self::Never { .. } => Code::Never,
            Self::Nothing => Code::BadRequest,
            Self::OutOfRange { .. } => Code::OutOfRange,
            Self::TooManyChanges { .. } => Code::TooManyChanges,
            Self::Forked => Code::Forked,
            Self::Returned => Code::Returned,
            Self::Removed => Code::Removed,
            Self::Damaged(_) => Code::Damaged,
            Self::Enrol(error) => error.code(),
        }
    }
}
