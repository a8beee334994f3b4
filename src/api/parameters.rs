//! The parameters of limits, as an opening or a change of a set gives them.

use std::time::Duration;

use crate::api::error::ManageError;
use crate::engine::NewNumbers;
use crate::limit::{Limit, validate};
use crate::segment::error::AttachError;
use crate::shared::SharedSet;
use crate::shared::error::Unavailable;

/// The new parameters of these limits, if nothing else would change.
pub(crate) fn numbers(set: &SharedSet, limits: &[Limit]) -> Result<Vec<NewNumbers>, ManageError> {
    validate(limits)?;
    let mut numbers = Vec::new();
    for limit in limits {
        let index = set.keys().find(limit.name()).ok_or_else(|| ManageError::UnknownKey {
            key: limit.name().to_owned(),
            known: set.keys().listed(),
        })?;
        let declared = set.definition().limits.get(index);
        if let Some(found) = declared.filter(|declared| !declared.is_same_kind_as(limit)) {
            let (found, wanted) = (found.to_string(), limit.to_string());
            return Err(ManageError::NotNumbers { found, wanted });
        }
        let rule = limit.rule(0);
        numbers.push(NewNumbers {
            limit: index,
            capacity: limit.capacity(),
            window_nanos: rule.map_or(0, |rule| rule.window_nanos()),
            burst: rule.map_or(0, |rule| rule.burst()),
        });
    }
    Ok(numbers)
}

/// Gives the set the numbers of these limits where it has others.
pub(crate) fn take_over_numbers(set: &SharedSet, limits: &[Limit]) -> Result<(), ManageError> {
    Ok(set.take_over_numbers(&numbers(set, limits)?)?)
}

/// The error of an opening that failed while it changed parameters.
pub(crate) fn attach_error(set: &SharedSet, error: ManageError) -> AttachError {
    let path = set.segment().view().path();
    match error {
        ManageError::Unavailable(why) => match *why {
            Unavailable::LockTimeout(_) => {
                AttachError::Busy { path, waited: Duration::from_nanos(set.lock_timeout()) }
            }
            Unavailable::Damaged(what) => AttachError::Damaged { path, what },
            Unavailable::Enrol(error) => error,
        },
        ManageError::NotShared => AttachError::NotShared,
        _ => AttachError::Removed { path },
    }
}
