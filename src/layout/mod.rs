//! Lay out: what every byte of a segment is.
//!
//! A segment is a header page, then regions found through the header's directory. Everything in a region
//! that more than one process writes is an atomic 32- or 64-bit word; nothing in a segment is a pointer,
//! a `usize` or a type whose size depends on the machine. `docs/format.md` states the same numbers as the
//! assertions in these files, and a test compares the two.
//!
//! ```text
//! header     who made this, how big, where the regions are      (never written after creation)
//! slots      one line pair per participant: generation, pid …   (written by the slot's holder)
//! state      a block: lock, version, journal, then the set's words (written under its lock)
//! waiters    doorbells and wishes of blocked acquirers
//! items      what items of work carry, and their results
//! definition what the set was declared as                       (never written after creation)
//! mutex, semaphore, words    regions of `limitset::sync` and of the user
//! ```

pub(crate) mod block;
pub(crate) mod definition;
pub(crate) mod header;
pub(crate) mod plan;
pub(crate) mod slots;
pub(crate) mod state;
#[cfg(test)]
mod tests;
pub(crate) mod waiters;
pub(crate) mod work;

/// Raised whenever the meaning or place of any byte changes.
pub(crate) const FORMAT_VERSION: u32 = 5;

/// Distance kept between words that different processes write without a lock: two 64-byte lines, because
/// x86 fetches lines in pairs.
pub(crate) const LINE_PAIR: u32 = 128;

/// A field of a struct in the segment: name, offset, size.
pub(crate) type Field = (&'static str, usize, usize);

/// Lists the fields of a struct with their offsets and sizes, so that one table feeds the layout hash, the
/// documentation test and the golden bytes.
macro_rules! fields {
    ($of:ty { $($field:ident),+ $(,)? }) => {
        &[$((stringify!($field), ::std::mem::offset_of!($of, $field), {
            const fn size<T, F>(_: &dyn Fn(&T) -> &F) -> usize { ::std::mem::size_of::<F>() }
            size::<$of, _>(&|it: &$of| &it.$field)
        })),+]
    };
}
pub(crate) use fields;

/// The structs whose numbers make up the format, by name.
pub(crate) const STRUCTS: &[(&str, usize, &[Field])] = &[
    ("Header", size_of::<header::Header>(), header::Header::FIELDS),
    ("RegionEntry", size_of::<header::RegionEntry>(), header::RegionEntry::FIELDS),
    ("SlotIdentity", size_of::<slots::SlotIdentity>(), slots::SlotIdentity::FIELDS),
    ("BlockHead", size_of::<block::BlockHead>(), block::BlockHead::FIELDS),
    ("SetWords", size_of::<state::SetWords>(), state::SetWords::FIELDS),
    ("LimitWords", size_of::<state::LimitWords>(), state::LimitWords::FIELDS),
    ("LimitRule", size_of::<state::LimitRule>(), state::LimitRule::FIELDS),
    ("WaiterLink", size_of::<state::WaiterLink>(), state::WaiterLink::FIELDS),
    ("ItemList", size_of::<work::ItemList>(), work::ItemList::FIELDS),
    ("WorkWords", size_of::<work::WorkWords>(), work::WorkWords::FIELDS),
    ("ItemWords", size_of::<work::ItemWords>(), work::ItemWords::FIELDS),
    ("DefinitionHead", size_of::<definition::DefinitionHead>(), definition::DefinitionHead::FIELDS),
    ("LimitDefinition", size_of::<definition::LimitDefinition>(), definition::LimitDefinition::FIELDS),
    ("WaiterHead", size_of::<waiters::WaiterHead>(), waiters::WaiterHead::FIELDS),
];

/// Hash of every number of the format: two builds that disagree about a single offset refuse each other's
/// segments even if someone forgot to raise [`FORMAT_VERSION`].
pub(crate) const LAYOUT_HASH: u64 = {
    let mut hash = Fnv::new();
    let mut structs = STRUCTS;
    while let [(name, size, fields), rest @ ..] = structs {
        hash = hash.bytes(name.as_bytes()).number(*size as u64);
        let mut fields = *fields;
        while let [(name, offset, size), rest @ ..] = fields {
            hash = hash.bytes(name.as_bytes()).number(*offset as u64).number(*size as u64);
            fields = rest;
        }
        structs = rest;
    }
    hash.0
};

/// FNV-1a, 64 bits: finds accidents, does not stop forgers (whoever can write the segment is trusted with it).
#[derive(Clone, Copy)]
pub(crate) struct Fnv(pub(crate) u64);

impl Fnv {
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) const fn bytes(mut self, bytes: &[u8]) -> Self {
        let mut rest = bytes;
        while let [first, tail @ ..] = rest {
            self.0 = (self.0 ^ *first as u64).wrapping_mul(0x0000_0100_0000_01b3);
            rest = tail;
        }
        self
    }

    pub(crate) const fn number(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }
}
