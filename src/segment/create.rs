//! Creating a segment: the name leads to a complete segment, or does not exist.
//!
//! The creator makes a file without a name, reserves its space, fills it, sets its permissions, and only then links
//! it to its name. A process that sees the name sees a complete segment, and a creator that dies leaves nothing.
//! Space is reserved with `fallocate`, because on a full tmpfs growing the file succeeds and the first access
//! raises SIGBUS.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::attach::{self, Source};
use super::name::Place;
use super::{Segment, SegmentOptions, attach_io};
use crate::format::header::Header;
use crate::format::plan::{Origin, Plan};
use crate::segment::error::{BadOption, CreateError};
use crate::sys::map::Map;
use crate::sys::{clock, file};

/// How often `open` retries when the segment is created or removed at the same time.
const OPEN_ROUNDS: usize = 8;

pub(super) fn create(options: &SegmentOptions, name: &OsStr) -> Result<Segment, CreateError> {
    let place = Place::of(name)?;
    make(options, &place)?;
    let segment = attach::attach(options, name)?;
    // By now another process may have removed the segment and created one of its own under the name.
    segment.same_definition(&options.shape)?;
    segment.same_shape(&options.shape)?;
    Ok(segment)
}

pub(super) fn open(options: &SegmentOptions, name: &OsStr) -> Result<Segment, CreateError> {
    let segment = attach_or_make(options, name)?;
    segment.same_shape(&options.shape)?;
    Ok(segment)
}

/// Attaches to the segment under the name, whatever its definition. Creates it as described if there is none.
pub(super) fn attach_or_make(options: &SegmentOptions, name: &OsStr) -> Result<Segment, CreateError> {
    let place = Place::of(name)?;
    options.check()?;
    let mut round = 0;
    loop {
        round += 1;
        match attach::attach(options, name) {
            Err(crate::segment::error::AttachError::NotFound { .. }) if round < OPEN_ROUNDS => {}
            Err(error) => return Err(error.into()),
            Ok(segment) => return Ok(segment),
        }
        match make(options, &place) {
            Ok(()) | Err(CreateError::Exists { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn anonymous(options: &SegmentOptions) -> Result<Segment, CreateError> {
    let path = PathBuf::from("(anonymous)");
    let plan = plan(options)?;
    let file = file::create_anonymous().map_err(|error| attach_io("create", &path, error))?;
    fill(&file, &plan, &path)?;
    file::seal_size(&file).map_err(|error| attach_io("seal", &path, error))?;
    Ok(attach::adopt(options, file, Source::Anonymous)?)
}

pub(super) fn private(options: &SegmentOptions) -> Result<Segment, CreateError> {
    let path = PathBuf::from("(private)");
    let plan = plan(options)?;
    let bytes = usize::try_from(plan.total_bytes).unwrap_or(usize::MAX);
    let map = Map::private(bytes, &plan.pieces).map_err(|error| attach_io("map", &path, error))?;
    let (_, header) = plan.pieces.first().cloned().unwrap_or_default();
    let checked = Header::check(&header, plan.total_bytes)
        .map_err(|what| crate::segment::error::AttachError::Malformed { path, what })?;
    Ok(attach::private(options, map, checked)?)
}

pub(super) fn plan(options: &SegmentOptions) -> Result<Plan, BadOption> {
    options.check()?;
    options.shape.plan(&Origin {
        instance: clock::random(),
        unix_nanos: clock::unix_nanos(),
        pid: std::process::id(),
        uid: nix::unistd::geteuid().as_raw(),
        clock_now: clock::monotonic(),
        boot_id: clock::boot_id(),
        time_namespace: clock::time_namespace(),
    })
}

/// Creates the file and links it to its name. Returns [`CreateError::Exists`] if the name is taken.
fn make(options: &SegmentOptions, place: &Place) -> Result<(), CreateError> {
    let plan = plan(options)?;
    let path = &place.path;
    if fs::symlink_metadata(path).is_ok() {
        // An early exit that saves work; the `link` below decides.
        return Err(CreateError::Exists { path: path.clone() });
    }
    let taken = match file::create_unnamed(place.directory()) {
        Ok(file) => {
            prepare(options, &file, &plan, place)?;
            file::publish_unnamed(&file, path)
        }
        Err(error) if file::lacks_unnamed(&error) => {
            let temporary = Temporary::beside(place);
            let file =
                file::create_named(&temporary.0).map_err(|error| attach_io("create", &temporary.0, error))?;
            prepare(options, &file, &plan, place)?;
            fs::hard_link(&temporary.0, path)
        }
        Err(error) => return Err(attach_io("create a file in", place.directory(), error).into()),
    };
    match taken {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(CreateError::Exists { path: path.clone() });
        }
        Err(error) => return Err(attach_io("name", path, error).into()),
    }
    if !place.is_named {
        let directory = File::open(place.directory());
        directory
            .and_then(|directory| directory.sync_all())
            .map_err(|error| attach_io("sync the directory of", path, error))?;
    }
    Ok(())
}

/// Fills the file and sets its group and mode, before it gets its name.
fn prepare(options: &SegmentOptions, file: &File, plan: &Plan, place: &Place) -> Result<(), CreateError> {
    let path = &place.path;
    attach::refuse_file_system(file, path)?;
    fill(file, plan, path)?;
    if let Some(group) = options.group {
        let path = path.clone();
        file::set_group(file, group).map_err(|source| CreateError::Group { path, group, source })?;
    }
    // Explicitly, because the umask must not apply; after the group, because changing the group may clear bits.
    file.set_permissions(Permissions::from_mode(options.mode))
        .map_err(|error| attach_io("set the mode of", path, error))?;
    if !place.is_named {
        file.sync_all().map_err(|error| attach_io("sync", path, error))?;
    }
    Ok(())
}

fn fill(file: &File, plan: &Plan, path: &Path) -> Result<(), CreateError> {
    let written = file::reserve(file, plan.total_bytes).and_then(|()| file::write_pieces(file, &plan.pieces));
    written.map_err(out_of_space(path, plan.total_bytes))
}

/// Returns the error for a failure to reserve `needed` bytes.
pub(super) fn out_of_space(path: &Path, needed: u64) -> impl Fn(io::Error) -> CreateError {
    move |error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            CreateError::NoSpace { path: path.to_owned(), needed }
        }
        _ => attach_io("reserve space for", path, error).into(),
    }
}

/// A temporary file name, removed on drop. It stays behind only if the process is killed.
struct Temporary(PathBuf);

impl Temporary {
    fn beside(place: &Place) -> Self {
        let random = u128::from_ne_bytes(clock::random());
        Self(place.directory().join(format!(".limitset.{random:032x}.new")))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
