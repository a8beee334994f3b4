//! Exit codes, on which scripts can rely. `docs/cli.md` has this table too.

use std::process::ExitCode;

/// How the command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done,
    /// Failed for a reason that has no code of its own.
    Failed,
    /// The command line or a file is invalid.
    Usage,
    /// The set does not exist.
    NoSet,
    /// `check` or `doctor` found a defect; or the segment is damaged, or the file is not a segment.
    Unsound,
    /// The set exists already, is in use, or differs from the request.
    Conflict,
    /// The set is unavailable: a stopped process holds its lock.
    Unavailable,
    /// Denied by a limit, or not granted in time. A retry can succeed.
    Later,
    /// The request exceeds the limit's maximum. A retry cannot succeed.
    Never,
    /// This user has no permission.
    NoPermission,
    /// The exit code of the command that `run` started.
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
