//! The description of a pool, which another process can attach by.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

use super::{Balance, LimitPool, PoolError};
use crate::api::set::LimitSet;

/// The names of existing sets and the balance, from which another process makes the same pool. As text it can be passed
/// on a command line or in the environment; special bytes of paths are encoded, `:` as `%3a`.
///
/// ```
/// use limitset::{CallLimit, LimitPool, LimitSet, PoolDescription};
///
/// # let name = format!("test-doc-pool-{}", std::process::id());
/// let set = LimitSet::builder().limit(CallLimit::per_minute(9)).open(&name)?;
/// let text = LimitPool::new([set])?.describe()?.to_string();
/// assert_eq!(text, format!("round_robin:{name}"));
///
/// let pool = text.parse::<PoolDescription>()?.attach()?.for_worker(3);
/// pool.try_acquire(())?.release()?;
/// # pool.get(0).unwrap().remove()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolDescription {
    /// Names or paths of the sets, in order.
    pub names: Vec<PathBuf>,
    /// How the pool balances.
    pub balance: Balance,
}

impl PoolDescription {
    /// Attaches to the sets.
    ///
    /// # Errors
    ///
    /// [`PoolError::Attach`] if this process cannot attach to one of them.
    pub fn attach(&self) -> Result<LimitPool, PoolError> {
        let sets = self.names.iter().map(LimitSet::attach).collect::<Result<Vec<_>, _>>()?;
        Ok(LimitPool::new(sets)?.balance(self.balance))
    }
}

impl fmt::Display for PoolDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.balance.name())?;
        for name in &self.names {
            f.write_str(":")?;
            for byte in name.as_os_str().as_bytes() {
                match byte {
                    b':' | b'%' | ..=b' ' | 0x7f.. => write!(f, "%{byte:02x}")?,
                    byte => write!(f, "{}", char::from(*byte))?,
                }
            }
        }
        Ok(())
    }
}

/// Decodes a name from the text of a description.
fn decoded(text: &str) -> Option<PathBuf> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        let is_code = code.bytes().all(|digit| digit.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(code, 16).ok().filter(|_| is_code)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    let is_name = !bytes.is_empty() && !bytes.contains(&0);
    is_name.then(|| PathBuf::from(OsString::from_vec(bytes)))
}

/// The error for a text that is not a pool description.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "invalid pool description {found:?}: use round_robin:name:name, or random or first_free instead of round_robin"
)]
pub struct BadDescription {
    /// The text given.
    pub found: String,
}

impl FromStr for PoolDescription {
    type Err = BadDescription;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadDescription { found: text.to_owned() };
        let (balance, names) = text.split_once(':').ok_or_else(bad)?;
        let balance = Balance::ALL.into_iter().find(|it| it.name() == balance).ok_or_else(bad)?;
        let names = names.split(':').map(decoded).collect::<Option<_>>().ok_or_else(bad)?;
        Ok(Self { names, balance })
    }
}
