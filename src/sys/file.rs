//! Segment files: opening them with suspicion, making them whole before they have a name.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::statfs::fstatfs;
use nix::unistd::{Gid, fchown, linkat};

use super::ofd::Identity;

/// Opens what is there and only that: no creating, no following of a last symlink, no waiting for the other
/// end of a FIFO. (std adds O_CLOEXEC.)
pub(crate) fn open_existing(path: &Path, write: bool) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)
}

/// A new file in `directory` that has no name yet: if we die, it never was.
pub(crate) fn create_unnamed(directory: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(directory)
}

/// A new file under a temporary name, for file systems without unnamed ones.
pub(crate) fn create_named(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Whether the file system merely has no unnamed files.
pub(crate) fn lacks_unnamed(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::EINVAL))
}

/// A new file in memory without any name, for this process and its children.
pub(crate) fn create_anonymous() -> io::Result<File> {
    // Systems that refuse executable memory files want to be told; kernels before 6.3 do not know the flag.
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let not_executable = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    let made = memfd_create("limitset", flags | not_executable);
    Ok(made.or_else(|_| memfd_create("limitset", flags))?.into())
}

/// Makes sure that a memfd keeps its size for ever: nobody can cause a SIGBUS by truncating it.
pub(crate) fn seal_size(file: &File) -> io::Result<()> {
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(())
}

/// Reserves `bytes` zeroed bytes, or fails now rather than with SIGBUS at the first touch.
pub(crate) fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let length = libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, length) {
            Err(Errno::EINTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Writes the pieces of a new segment.
pub(crate) fn write_pieces(file: &File, pieces: &[(u64, Vec<u8>)]) -> io::Result<()> {
    pieces.iter().try_for_each(|(offset, bytes)| file.write_all_at(bytes, *offset))
}

/// Gives the file to a group.
pub(crate) fn set_group(file: &File, group: u32) -> io::Result<()> {
    Ok(fchown(file, None, Some(Gid::from_raw(group)))?)
}

/// Gives an unnamed file its name; fails if the name is taken.
pub(crate) fn publish_unnamed(file: &File, path: &Path) -> io::Result<()> {
    let through = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    let follow = AtFlags::AT_SYMLINK_FOLLOW;
    Ok(linkat(AT_FDCWD, through.as_str(), AT_FDCWD, path, follow)?)
}

/// What a path leads to; a symlink is not followed.
pub(crate) fn identity_at(path: &Path) -> io::Result<Identity> {
    std::fs::symlink_metadata(path).map(|about| Identity::of(&about))
}

/// Whether something is mounted exactly at a path; a symlink is not followed. None if that cannot be told: before Linux
/// 5.8, or without permission.
pub(crate) fn is_mount_root(path: &Path) -> Option<bool> {
    const MOUNT_ROOT: u64 = 0x2000;
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut about = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT;
    // SAFETY: `path` ends with a zero byte, `about` is a live statx, and both outlive the call.
    let code = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, 0, about.as_mut_ptr()) };
    Errno::result(code).ok()?;
    // SAFETY: all bytes were zero before statx filled them, and any bytes are a valid statx: it is made of integers.
    let about = unsafe { about.assume_init() };
    (about.stx_attributes_mask & MOUNT_ROOT != 0).then_some(about.stx_attributes & MOUNT_ROOT != 0)
}

/// Why segments do not work on the file system of `file`, if so: its locks or mappings are not those of one
/// kernel. The numbers are the kernel's own, from its header of file system magics.
pub(crate) fn unsuitable_file_system(file: &File) -> io::Result<Option<&'static str>> {
    #[allow(clippy::unnecessary_cast, reason = "C libraries differ in the type of the magic number")]
    let magic = fstatfs(file)?.filesystem_type().0 as i64;
    Ok(unsuitable(magic))
}

fn unsuitable(magic: i64) -> Option<&'static str> {
    match magic & 0xffff_ffff {
        0x6969 => Some("NFS"),
        0x6573_5546 => Some("FUSE"),
        0x0102_1997 => Some("9p"),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => Some("SMB"),
        0x00c3_6400 => Some("Ceph"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x7461_636f => Some("OCFS2"),
        0x0116_1970 => Some("GFS2"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x7375_7245 => Some("Coda"),
        0x786f_4256 => Some("a VirtualBox shared folder"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_other_machines_are_unsuitable_and_local_ones_are_not() {
        assert_eq!(unsuitable(0x6969), Some("NFS"));
        assert_eq!(unsuitable(0xff53_4d42u32.cast_signed().into()), Some("SMB"));
        assert_eq!(unsuitable(0x0102_1994), None, "tmpfs");
        assert_eq!(unsuitable(0xef53), None, "ext4");
    }
}
