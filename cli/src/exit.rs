//! Exit codes: what a script can rely on. `docs/cli.md` has the same table.

use std::process::ExitCode;

/// How the command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done,
    /// Something went wrong that no other code is for.
    Failed,
    /// The command line or a file makes no sense.
    Usage,
    /// There is no such set.
    NoSet,
    /// `check` or `doctor` found something wrong; the segment is damaged or no segment.
    Unsound,
    /// The set exists already, is in use, or differs from what was asked for.
    Conflict,
    /// The set could not be asked: a process that is stopped holds its lock.
    Unavailable,
    /// Refused by a limit, or nothing granted in time: later it may work.
    Later,
    /// More than a limit ever gives: waiting is of no use.
    Never,
    /// This user may not.
    NoPermission,
    /// What the command that was run ended with.
    Of(u8),
}

impl Exit {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NoSet => 3,
            Self::Unsound => 4,
            Self::Conflict => 5,
            Self::Unavailable => 69,
            Self::Later => 75,
            Self::Never => 76,
            Self::NoPermission => 77,
            Self::Of(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_and_the_help_have_every_code() {
        let manual = include_str!("../../docs/cli.md");
        let all = [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::NoSet,
            Exit::Unsound,
            Exit::Conflict,
            Exit::Unavailable,
            Exit::Later,
            Exit::Never,
            Exit::NoPermission,
        ];
        for exit in all {
            let number = exit.number();
            assert!(manual.contains(&format!("\n| {number} | ")), "{exit:?}");
            assert!(crate::args::AFTER.contains(&format!(" {number} ")), "{exit:?}");
        }
    }
}
