//! Failures of a command: a message, an exit code, and a stable code for programs. Where the library's
//! message advises a program, the message here names the command to use instead.

use std::fmt::Display;
use std::io::{self, Write};

use limitset::error::{AttachError, CreateError, SyncError};
use limitset::limit::BadLimit;
use limitset::{AcquireError, ManageError, OpenError, Unavailable};
use serde_json::json;

use crate::context::Context;
use crate::exit::Exit;
use crate::grammar::BadText;
use crate::text;

/// A failed command.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// A stable code, for programs.
    pub(crate) code: &'static str,
    /// The message: the failure, the finding, the advice.
    pub(crate) message: String,
    /// An excerpt of the faulty text, with a mark below the fault.
    pub(crate) excerpt: Option<String>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, code: &'static str, message: impl Display) -> Self {
        Self { exit, code, message: message.to_string(), excerpt: None }
    }

    /// Returns a failure for an invalid command line.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, "usage", message)
    }

    fn removed(what: impl Display) -> Self {
        let message =
            format!("{what} was removed: create it again with `limitset create` if it is still needed");
        Self::new(Exit::NoSet, "removed", message)
    }

    /// Prefixes the message with its subject.
    pub(crate) fn about(mut self, what: impl Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    pub(crate) fn print(&self, context: &Context, out: &mut dyn Write) -> io::Result<()> {
        // The reader closed the pipe and wants no more output: this is not an error.
        if self.code == "broken_pipe" {
            return Ok(());
        }
        if context.json {
            let error = json!({ "code": self.code, "exit": self.exit.number(), "message": self.message });
            return writeln!(out, "{}", json!({ "error": error }));
        }
        writeln!(out, "limitset: {}", text::clean(&self.message))?;
        match &self.excerpt {
            Some(excerpt) => writeln!(out, "{excerpt}"),
            None => Ok(()),
        }
    }
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Self {
        let (exit, code) = match &error {
            AttachError::Name(_) => (Exit::Usage, "bad_name"),
            AttachError::NotFound { path } => {
                let message = format!(
                    "there is no set {}: create it first with `limitset create`, or choose one of `limitset list`",
                    path.display()
                );
                return Self::new(Exit::NoSet, "no_such_set", message);
            }
            AttachError::Removed { path } => return Self::removed(path.display()),
            AttachError::Permission { .. } => (Exit::NoPermission, "no_permission"),
            AttachError::Owner { path, found, expected } => {
                let message = format!(
                    "cannot use {}: it belongs to user {found}, this process runs as user {expected}, and another \
                     user may have planted it; use --any-owner if it is meant to be shared",
                    path.display()
                );
                return Self::new(Exit::NoPermission, "other_owner", message);
            }
            AttachError::Malformed { .. } => (Exit::Unsound, "malformed"),
            AttachError::Damaged { .. } => (Exit::Unsound, "damaged"),
            AttachError::NotAFile { .. } => (Exit::Unsound, "not_a_set"),
            AttachError::NotASet { path } => {
                let message = format!(
                    "{} is not a set of limits, but a segment that a program uses for its own data: use another name",
                    path.display()
                );
                return Self::new(Exit::Unsound, "not_a_set", message);
            }
            AttachError::Differs { .. } => (Exit::Conflict, "differs"),
            AttachError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                (Exit::NoPermission, "no_permission")
            }
            AttachError::Busy { .. } => (Exit::Unavailable, "busy"),
            AttachError::TooManyParticipants { path, slots } => {
                let message = format!(
                    "all {slots} slots of {} are in use: stop a participant, or create the set with more --slots",
                    path.display()
                );
                return Self::new(Exit::Unavailable, "too_many_participants", message);
            }
            _ => (Exit::Failed, "failed"),
        };
        Self::new(exit, code, error)
    }
}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Self {
        let (exit, code) = match error {
            CreateError::Attach(error) => return error.into(),
            CreateError::Option(_) => (Exit::Usage, "bad_option"),
            CreateError::Exists { path } => {
                let message = format!(
                    "cannot create {}: it exists already; show it with `limitset show`, change it with `limitset set` or \
                     `limitset apply`, or `limitset rm` it first",
                    path.display()
                );
                return Self::new(Exit::Conflict, "exists", message);
            }
            CreateError::NoSpace { .. } => (Exit::Failed, "no_space"),
            CreateError::Group { .. } => (Exit::NoPermission, "no_permission"),
            _ => (Exit::Failed, "failed"),
        };
        Self::new(exit, code, error)
    }
}

impl From<BadLimit> for Failure {
    fn from(error: BadLimit) -> Self {
        Self::new(Exit::Usage, "bad_limit", error)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Segment(error) => error.into(),
            OpenError::Limit(error) => error.into(),
            other => Self::new(Exit::Usage, "bad_setting", other),
        }
    }
}

impl From<Unavailable> for Failure {
    fn from(error: Unavailable) -> Self {
        match error {
            Unavailable::Enrol(error) => error.into(),
            Unavailable::Damaged(_) => Self::new(Exit::Unsound, "damaged", error),
            other => Self::new(Exit::Unavailable, "unavailable", other),
        }
    }
}

impl From<ManageError> for Failure {
    fn from(error: ManageError) -> Self {
        let (exit, code) = match error {
            ManageError::Unavailable(why) => return (*why).into(),
            ManageError::Limit(error) => return error.into(),
            ManageError::UnknownKey { .. } => (Exit::Usage, "unknown_key"),
            ManageError::NotNumbers { .. } => (Exit::Conflict, "differs"),
            ManageError::Removed => return Self::removed("the set"),
            _ => (Exit::Failed, "failed"),
        };
        Self::new(exit, code, error)
    }
}

impl From<SyncError> for Failure {
    fn from(error: SyncError) -> Self {
        let (exit, code) = match error {
            SyncError::Enrol(error) => return error.into(),
            SyncError::Damaged(_) => (Exit::Unsound, "damaged"),
            SyncError::Busy { .. } => (Exit::Unavailable, "busy"),
            SyncError::Removed => return Self::removed("the set"),
            _ => (Exit::Failed, "failed"),
        };
        Self::new(exit, code, error)
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let (exit, code) = match error {
            AcquireError::Unavailable(why) => return (*why).into(),
            AcquireError::Denied(_) => (Exit::Later, "denied"),
            AcquireError::Queued { .. } => (Exit::Later, "queued"),
            AcquireError::CoolingDown { .. } => (Exit::Later, "cooling_down"),
            AcquireError::QueueFull { .. } => (Exit::Later, "queue_full"),
            AcquireError::TimedOut(_) => (Exit::Later, "timed_out"),
            AcquireError::Never { .. } => (Exit::Never, "never"),
            AcquireError::BadRequest(_) => (Exit::Usage, "bad_request"),
            AcquireError::Removed => return Self::removed("the set"),
            _ => (Exit::Failed, "failed"),
        };
        Self::new(exit, code, error)
    }
}

impl From<BadText> for Failure {
    fn from(error: BadText) -> Self {
        Self { excerpt: Some(error.excerpt()), ..Self::new(Exit::Usage, "bad_text", &error) }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(Exit::Done, "broken_pipe", error),
            io::ErrorKind::PermissionDenied => Self::new(Exit::NoPermission, "no_permission", error),
            _ => Self::new(Exit::Failed, "failed", error),
        }
    }
}
