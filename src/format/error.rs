//! Errors of the format: invalid options of a new segment, and bytes that are not a segment.

use thiserror::Error;

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
    /// A file mode without read and write access for the owner.
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
    /// It does not start with the bytes of a segment.
    #[error(
        "it starts with {:?}, a segment with \"LIMITSET\": another program's file; use another name",
        String::from_utf8_lossy(found)
    )]
    Magic { found: [u8; 8] },
    /// A mapping whose adoption is not finished.
    #[error(
        "its adoption is under way, or the adopting process was killed: try again; if that does not help, \
        adopt it again or remove it"
    )]
    Unfinished,
    /// A mapping to be adopted that already contains data.
    #[error(
        "byte {offset} is not zero, but there is no segment: another program uses it; adopt a mapping of \
        zero bytes"
    )]
    InUse { offset: u64 },
    /// Made on a machine of the other byte order.
    #[error(
        "its byte order stamp is {found:#010x}, this machine's {expected:#010x}: made on a machine of \
        the other byte order; create it anew"
    )]
    ByteOrder { found: u32, expected: u32 },
    /// Made in another version of the format.
    #[error(
        "it has format version {found}, this build reads {expected}: use one version of limitset \
        in all processes, or remove the segment when no process uses it"
    )]
    FormatVersion { found: u32, expected: u32 },
    /// Made on a machine with other sizes.
    #[error(
        "it has {word_bytes}-byte words and {line_bytes}-byte lines, this build 8 and 128: made for \
        another kind of machine; create it anew"
    )]
    Machine { word_bytes: u32, line_bytes: u32 },
    /// Made by a build with another layout.
    #[error(
        "its layout hash is {found:#x}, this build's {expected:#x}: made by a build with another \
        layout; use one version of limitset in all processes"
    )]
    LayoutHash { found: u64, expected: u64 },
    /// The header does not match its checksum.
    #[error("its header has checksum {found:#x}, its bytes give {expected:#x}: damaged; remove it")]
    Checksum { found: u64, expected: u64 },
    /// The file size differs from the size in its header.
    #[error("the file has {found} bytes, its header says {expected}: truncated or extended; remove it")]
    Size { found: u64, expected: u64 },
    /// It counts time by an unknown clock.
    #[error(
        "it counts time by clock {found}, which is unknown to this build: use one version of limitset in all \
        processes"
    )]
    Clock { found: u32 },
    /// A number in the header is out of bounds.
    #[error("its header says {found} {what}, valid are {least} to {most}: damaged; remove it")]
    Count { what: &'static str, found: u32, least: u32, most: u32 },
    /// A region with an invalid place or description.
    #[error("region {index} (kind {kind}) {what}: damaged; remove it")]
    Region { index: usize, kind: u32, what: &'static str },
    /// A region that every segment has is missing.
    #[error("it lacks one of the regions slots, state, waiters: damaged; remove it")]
    RegionMissing,
    /// The declaration of the set cannot be read.
    #[error("its definition of limits {what}: damaged; remove it")]
    Definition { what: &'static str },
}
