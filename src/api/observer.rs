//! A set attached to for reading only.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::limit::{Definition, Limit};
use crate::segment::Observer;
use crate::segment::error::{AttachError, SyncError};
use crate::shared::keys::Keys;
use crate::shared::stats::Stats;

/// A set attached to for reading only; made by [`LimitSet::observe`](crate::LimitSet::observe).
#[derive(Clone)]
pub struct SetObserver {
    observer: Observer,
    definition: Arc<Definition>,
    keys: Arc<Keys>,
}

impl SetObserver {
    pub(crate) fn new(observer: Observer) -> Result<Self, AttachError> {
        let view = observer.view();
        let definition = view.definition.clone().ok_or_else(|| AttachError::NotASet { path: view.path() })?;
        let keys = Arc::new(Keys::new(&definition.limits, view.table()));
        Ok(Self { observer, definition, keys })
    }

    /// The set at one instant. Waits for nobody: where a writer died in the middle, what it had begun is left out.
    ///
    /// # Errors
    ///
    /// If a living writer is stopped in the middle, or the segment is damaged.
    pub fn stats(&self) -> Result<Stats, SyncError> {
        Stats::read(self.observer.view(), &self.keys)
    }

    /// The limits as they were declared, in order.
    pub fn limits(&self) -> &[Limit] {
        &self.definition.limits
    }

    /// The config map of the set.
    pub fn config(&self) -> &BTreeMap<String, String> {
        &self.definition.config
    }

    /// The segment that the set lives in.
    pub fn segment(&self) -> &Observer {
        &self.observer
    }
}
