//! Tests of the installation: files, names in the library, flags, and the example at the top of the header.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Trial;

use crate::programs::{WARNINGS, folder, prefix, scratch};
use crate::{skip, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, fn()); 5] = [
        ("the_shared_library_is_found_by_its_soname", the_shared_library_is_found_by_its_soname),
        ("the_shared_library_stays_once_it_is_loaded", the_shared_library_stays_once_it_is_loaded),
        (
            "the_library_has_the_names_of_the_header_and_no_others",
            the_library_has_the_names_of_the_header_and_no_others,
        ),
        ("pkg_config_gives_flags_that_work", pkg_config_gives_flags_that_work),
        ("the_header_explains_every_status", every_status_is_documented),
    ];
    tests.into_iter().map(|(name, test)| trial(format!("installed::{name}"), test)).collect()
}

fn header() -> String {
    std::fs::read_to_string(prefix().join("include/limitset.h")).unwrap()
}

/// The program in the comment at the top of the header, as a file.
pub(crate) fn example_of_the_header() -> PathBuf {
    let header = header();
    let lines = header.lines().skip_while(|line| !line.starts_with("// EXAMPLE:"));
    let code = lines.take_while(|line| !line.starts_with("// END OF THE EXAMPLE"));
    let code = code.filter_map(|line| line.strip_prefix("//     ").or((line == "//").then_some("")));
    let path = scratch().join("of_the_header.c");
    // Two tests may write it at one time; renaming makes sure that a reader sees a whole file.
    static WRITTEN: std::sync::Once = std::sync::Once::new();
    WRITTEN.call_once(|| std::fs::write(&path, code.collect::<Vec<_>>().join("\n") + "\n").unwrap());
    path
}

fn the_shared_library_is_found_by_its_soname() {
    let abi =
        header().lines().find_map(|line| line.strip_prefix("#define LIMITSET_ABI_VERSION ")?.parse().ok());
    let abi: u32 = abi.expect("the header says LIMITSET_ABI_VERSION");
    let (lib, soname) = (prefix().join("lib"), format!("liblimitset.so.{abi}"));
    assert_eq!(std::fs::read_link(lib.join("liblimitset.so")).unwrap(), Path::new(&soname));
    let bytes = std::fs::read(lib.join(&soname)).unwrap();
    let with_zero = format!("{soname}\0");
    assert!(bytes.windows(with_zero.len()).any(|it| it == with_zero.as_bytes()), "it does not say {soname}");
    assert!(lib.join("liblimitset.a").exists());
}

/// Its threads and fork handlers outlive a dlclose.
fn the_shared_library_stays_once_it_is_loaded() {
    let library = prefix().join("lib/liblimitset.so");
    let Ok(read) = Command::new("readelf").arg("-d").arg(library).output() else {
        return skip("the_shared_library_stays_once_it_is_loaded", "there is no readelf: install binutils");
    };
    assert!(String::from_utf8_lossy(&read.stdout).contains("NODELETE"));
}

/// Names of functions that the header declares and does not define itself.
fn declared(header: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in header.lines().filter(|line| !line.starts_with(['/', '#', ' ', 't', '}'])) {
        if line.starts_with("static inline") {
            continue;
        }
        if let Some((before, _)) = line.split_once('(')
            && let Some(name) = before.rsplit([' ', '*']).next()
            && name.starts_with("limitset_")
        {
            names.insert(name.to_owned());
        }
    }
    names
}

fn the_library_has_the_names_of_the_header_and_no_others() {
    let declared = declared(&header());
    assert!(declared.len() > 60, "{declared:?}");
    let library = prefix().join("lib/liblimitset.so");
    let Ok(listed) =
        Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library).output()
    else {
        return skip(
            "the_library_has_the_names_of_the_header_and_no_others",
            "there is no nm: install binutils",
        );
    };
    let listed = String::from_utf8(listed.stdout).unwrap();
    let exported: BTreeSet<_> =
        listed.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    assert_eq!(exported, declared);
}

fn pkg_config_gives_flags_that_work() {
    let ask = |flags: &[&str]| {
        let path = prefix().join("lib/pkgconfig");
        Command::new("pkg-config").args(flags).arg("limitset").env("PKG_CONFIG_PATH", path).output()
    };
    let Ok(version) = ask(&["--modversion"]) else {
        return skip("pkg_config_gives_flags_that_work", "there is no pkg-config: install it");
    };
    assert_eq!(String::from_utf8_lossy(&version.stdout).trim(), env!("CARGO_PKG_VERSION"));
    for flags in [&["--cflags", "--libs"][..], &["--cflags", "--libs", "--static"]] {
        let given = String::from_utf8(ask(flags).unwrap().stdout).unwrap();
        let program = scratch().join(format!("by-pkg-config-{}", flags.len()));
        let mut compile = Command::new(std::env::var("CC").unwrap_or("cc".to_owned()));
        compile.args(WARNINGS).arg(example_of_the_header()).args(given.split_whitespace());
        compile.arg("-o").arg(&program);
        let done = compile.output().unwrap();
        assert!(done.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&done.stderr));
        let ran = Command::new(&program).env("LD_LIBRARY_PATH", prefix().join("lib")).output().unwrap();
        assert_eq!((ran.status.success(), ran.stdout.as_slice()), (true, &b"done\n"[..]));
    }
}

/// Every status has a comment of its own, and a row in the table of the manual.
fn every_status_is_documented() {
    let source = std::fs::read_to_string(folder().join("src/status.rs")).unwrap();
    let header = header();
    let (_, manual) = header.split_once("// ERRORS").unwrap();
    let (table, _) = manual.split_once("#ifndef").unwrap();
    let listed: BTreeSet<_> = table.split(|c: char| !c.is_ascii_uppercase() && c != '_').collect();
    let mut before = "";
    let mut count = 0;
    for line in source.lines().map(str::trim) {
        if let Some((name, _)) = line.strip_prefix("LIMITSET_").and_then(|rest| rest.split_once(" = ")) {
            assert!(before.starts_with("///"), "{line} says nothing of itself");
            assert!(name == "OK" || listed.contains(name), "{name} is not in the table of manual.h");
            count += 1;
        }
        before = line;
    }
    assert!(count > 40);
}
