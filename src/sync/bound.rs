//! A block whose words are looked up once and stored together with their segment.

use std::sync::Arc;

use self_cell::self_cell;

use crate::format::header::RegionEntry;
use crate::protocol::Block;
use crate::segment::Segment;
use crate::segment::error::AttachError;
use crate::sys::machine::Machine;

type MachineBlock<'a> = Block<'a, Machine>;

self_cell!(
    struct BlockCell {
        owner: Segment,
        #[covariant]
        dependent: MachineBlock,
    }
);

/// A block and the segment that contains it.
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
