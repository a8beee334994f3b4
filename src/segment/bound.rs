//! Words of a segment, found once and kept beside the segment that they are in: finding them again for every operation
//! would cost more than most operations do.

use std::sync::Arc;

use self_cell::self_cell;

use super::Segment;
use crate::core::Block;
use crate::engine::Engine;
use crate::error::AttachError;
use crate::layout::header::RegionEntry;
use crate::request::Keys;
use crate::sys::machine::Machine;

type MachineBlock<'a> = Block<'a, Machine>;
type MachineEngine<'a> = Engine<'a, Machine>;

self_cell!(
    struct BlockCell {
        owner: Segment,
        #[covariant]
        dependent: MachineBlock,
    }
);

/// A block, and the segment that it is in.
#[derive(Clone)]
pub(crate) struct BoundBlock {
    cell: Arc<BlockCell>,
    region: RegionEntry,
}

impl BoundBlock {
    pub(crate) fn new(segment: Segment, region: RegionEntry) -> Result<Self, AttachError> {
        let cell = BlockCell::try_new(segment, |segment| segment.view().block(&region))?;
        Ok(Self { cell: Arc::new(cell), region })
    }

    #[inline]
    pub(crate) fn block(&self) -> &Block<'_, Machine> {
        self.cell.borrow_dependent()
    }

    #[inline]
    pub(crate) fn segment(&self) -> &Segment {
        self.cell.borrow_owner()
    }

    pub(crate) fn region(&self) -> &RegionEntry {
        &self.region
    }
}

impl std::fmt::Debug for BoundBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoundBlock").field("segment", self.segment()).finish_non_exhaustive()
    }
}

struct SetParts {
    segment: Segment,
    keys: Arc<Keys>,
}

self_cell!(
    struct EngineCell {
        owner: SetParts,
        #[covariant]
        dependent: MachineEngine,
    }
);

/// The engine of a set, the segment that its words are in, and what they mean.
pub(crate) struct BoundEngine(EngineCell);

impl BoundEngine {
    pub(crate) fn new(segment: Segment, keys: Arc<Keys>) -> Result<Self, AttachError> {
        let parts = SetParts { segment, keys };
        EngineCell::try_new(parts, |parts| parts.segment.view().engine(&parts.keys.table)).map(Self)
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Engine<'_, Machine> {
        self.0.borrow_dependent()
    }

    #[inline]
    pub(crate) fn segment(&self) -> &Segment {
        &self.0.borrow_owner().segment
    }

    #[inline]
    pub(crate) fn keys(&self) -> &Arc<Keys> {
        &self.0.borrow_owner().keys
    }
}
