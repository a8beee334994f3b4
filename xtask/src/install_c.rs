//! `cargo xtask install-c --prefix DIR`: installs the header, the libraries and the pkg-config file of the C
//! binding.
//!
//! ```text
//! DIR/include/limitset.h
//! DIR/lib/liblimitset.so.1       the soname, which linked programs load
//! DIR/lib/liblimitset.so         a link to it, for the linker
//! DIR/lib/liblimitset.a
//! DIR/lib/pkgconfig/limitset.pc
//! ```

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use crate::test;

const USAGE: &str = "\
usage: cargo xtask install-c --prefix DIR

Builds the C binding and installs it under DIR; if DESTDIR is set, under $DESTDIR/DIR, for packages.
";

/// Builds and installs the C binding.
pub(crate) fn command(args: &[String]) -> io::Result<ExitCode> {
    let [flag, prefix] = args else {
        io::stderr().write_all(USAGE.as_bytes())?;
        return Ok(ExitCode::from(crate::MISUSE));
    };
    if flag != "--prefix" || prefix.is_empty() {
        io::stderr().write_all(USAGE.as_bytes())?;
        return Ok(ExitCode::from(crate::MISUSE));
    }
    // The pkg-config file must not depend on the current directory.
    let prefix = std::path::absolute(prefix)?;
    let Some(built) = build()? else { return Ok(ExitCode::FAILURE) };
    let source = test::root().join("ffi/c");
    let to = below(env::var_os("DESTDIR").as_deref(), &prefix);
    let abi = abi_version(&fs::read_to_string(source.join("src/abi.rs"))?)?;
    let (lib, soname) = (to.join("lib"), format!("liblimitset.so.{abi}"));
    put(&fs::read(source.join("include/limitset.h"))?, &to.join("include/limitset.h"), 0o644)?;
    put(&fs::read(built.join("liblimitset.so"))?, &lib.join(&soname), 0o755)?;
    put(&fs::read(built.join("liblimitset.a"))?, &lib.join("liblimitset.a"), 0o644)?;
    link(&soname, &lib.join("liblimitset.so"))?;
    let file = pkg_config(&fs::read_to_string(source.join("limitset.pc.in"))?, &prefix);
    put(file.as_bytes(), &lib.join("pkgconfig/limitset.pc"), 0o644)?;
    writeln!(io::stdout(), "installed limitset {} for C in {}", env!("CARGO_PKG_VERSION"), to.display())?;
    Ok(ExitCode::SUCCESS)
}

/// Builds the libraries. Returns the folder they are in, or None if the build failed.
fn build() -> io::Result<Option<PathBuf>> {
    let cargo = env::var_os("CARGO").unwrap_or("cargo".into());
    let line = ["build", "--release", "-p", "limitset-c"];
    let status = Command::new(cargo).args(line).current_dir(test::root()).status()?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    Ok(status.success().then(|| test::root().join(target).join("release")))
}

/// Returns `prefix`, under another root if there is one.
fn below(root: Option<&OsStr>, prefix: &Path) -> PathBuf {
    match root.filter(|root| !root.is_empty()) {
        Some(root) => Path::new(root).join(prefix.strip_prefix("/").unwrap_or(prefix)),
        None => prefix.to_owned(),
    }
}

fn abi_version(source: &str) -> io::Result<u32> {
    let line = source.lines().find_map(|line| line.strip_prefix("pub const LIMITSET_ABI_VERSION: u32 = "));
    let number = line.and_then(|line| line.strip_suffix(';')?.parse().ok());
    number.ok_or_else(|| io::Error::other("cannot find LIMITSET_ABI_VERSION in ffi/c/src/abi.rs"))
}

fn pkg_config(template: &str, prefix: &Path) -> String {
    let filled = template.replace("@PREFIX@", &prefix.to_string_lossy());
    filled.replace("@VERSION@", env!("CARGO_PKG_VERSION"))
}

/// Writes a file under a temporary name and then renames it: a program that uses the old file keeps it.
fn put(bytes: &[u8], path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".new-{}", std::process::id()));
    let new = PathBuf::from(new);
    let written = fs::write(&new, bytes)
        .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn link(to: &str, path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(to, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pkg_config_file_knows_prefix_and_version() {
        let file = pkg_config("prefix=@PREFIX@\nVersion: @VERSION@\n", Path::new("/opt/x"));
        assert_eq!(file, format!("prefix=/opt/x\nVersion: {}\n", env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn a_package_is_put_together_under_another_root() {
        assert_eq!(below(Some("/tmp/pkg".as_ref()), Path::new("/usr")), Path::new("/tmp/pkg/usr"));
        assert_eq!(below(Some("".as_ref()), Path::new("/usr")), Path::new("/usr"));
        assert_eq!(below(None, Path::new("/usr")), Path::new("/usr"));
    }

    #[test]
    fn the_version_of_the_interface_is_found_in_the_source() {
        let source = fs::read_to_string(test::root().join("ffi/c/src/abi.rs")).unwrap();
        assert!(abi_version(&source).unwrap() >= 1);
        assert!(abi_version("").is_err());
    }

    #[test]
    fn a_command_line_without_a_prefix_is_refused() {
        for line in [&["--prefix"][..], &[], &["--prefix", ""], &["/usr", "x"]] {
            let args: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(command(&args).unwrap(), ExitCode::from(crate::MISUSE));
        }
    }

    #[test]
    fn a_file_that_is_replaced_leaves_nothing_beside_it() {
        let folder = env::temp_dir().join(format!("xtask-install-{}", std::process::id()));
        let path = folder.join("a/liblimitset.so.1");
        put(b"one", &path, 0o644).unwrap();
        put(b"two", &path, 0o755).unwrap();
        link("liblimitset.so.1", &folder.join("a/liblimitset.so")).unwrap();
        link("liblimitset.so.1", &folder.join("a/liblimitset.so")).unwrap();
        let text = fs::read(folder.join("a/liblimitset.so")).unwrap();
        let count = fs::read_dir(folder.join("a")).unwrap().count();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((text.as_slice(), count), (&b"two"[..], 2));
    }
}
