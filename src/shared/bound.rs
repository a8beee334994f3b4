//! Words of a segment, found once and kept beside the segment that they are in: finding them again for every operation
//! would cost more than most operations do.

use std::sync::Arc;

use self_cell::self_cell;

use super::keys::Keys;
use crate::engine::Engine;
use crate::segment::Segment;
use crate::segment::error::AttachError;
use crate::sys::machine::Machine;

type MachineEngine<'a> = Engine<'a, Machine>;

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
