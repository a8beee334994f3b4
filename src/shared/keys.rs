//! The names of a set's limits, and what stands behind them.

use std::sync::Arc;

use crate::engine::Table;
use crate::limit::Limit;

/// The limits of a set by name.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) limits: Vec<Limit>,
    /// Their names again, to be handed out without a copy.
    names: Vec<Arc<str>>,
    pub(crate) table: Table,
}

impl Keys {
    pub(crate) fn new(limits: &[Limit], table: Table) -> Self {
        let names = limits.iter().map(|limit| limit.name().into()).collect();
        Self { limits: limits.to_vec(), names, table }
    }

    /// The name of a limit, without a copy.
    pub(crate) fn shared_name(&self, limit: usize) -> Arc<str> {
        self.names.get(limit).cloned().unwrap_or_default()
    }

    /// The name of a limit; empty if there is no such limit.
    pub(crate) fn name(&self, limit: usize) -> &str {
        self.limits.get(limit).map_or("", Limit::name)
    }

    /// The number of the limit with this name.
    pub(crate) fn find(&self, key: &str) -> Option<usize> {
        self.limits.iter().position(|limit| limit.name() == key)
    }

    /// All names, for messages.
    pub(crate) fn listed(&self) -> String {
        match self.limits.as_slice() {
            [] => "none".to_owned(),
            limits => limits.iter().map(Limit::name).collect::<Vec<_>>().join(", "),
        }
    }
}
