//! The header is generated from the source; the committed one must be current.
//!
//! `LIMITSET_BLESS=1 cargo test -p limitset-c --test header` writes it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

/// The sources, in the order of the header.
const SOURCES: [&str; 15] = [
    "abi",
    "version",
    "status",
    "handles",
    "limit",
    "builder",
    "args",
    "denial",
    "request",
    "interrupt",
    "held",
    "set",
    "pool",
    "queue",
    "stats",
];

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> PathBuf {
    folder().join("include/limitset.h")
}

/// Reads a hand-written part of the header: the manual before the declarations, the inline functions after them.
fn written(name: &str) -> String {
    std::fs::read_to_string(folder().join("manual").join(name)).unwrap().trim_end().to_owned()
}

fn made() -> String {
    let config = Config {
        language: Language::C,
        cpp_compat: true,
        style: Style::Type,
        documentation_style: DocumentationStyle::C99,
        no_includes: true,
        usize_is_size_t: true,
        line_length: 110,
        ..Config::default()
    };
    let mut builder = Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(folder().join(format!("src/{source}.rs")));
    }
    for word in ["kind", "algorithm", "clock", "difference", "balance", "reason"] {
        builder = builder.include_item(format!("limitset_{word}"));
    }
    let mut text = Vec::new();
    builder.generate().unwrap().write(&mut text);
    let declarations = without_safety(&String::from_utf8(text).unwrap());
    let includes = "#include <stddef.h>\n#include <stdint.h>\n#include <string.h>";
    let (manual, inline) = (written("manual.h"), written("inline.h"));
    let guarded = format!("{includes}\n\n{}\n\n{inline}", declarations.trim());
    format!("{manual}\n\n#ifndef LIMITSET_H\n#define LIMITSET_H\n\n{guarded}\n\n#endif // LIMITSET_H\n")
}

/// Removes the `# Safety` sections: the manual states the rules for pointers once.
fn without_safety(text: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut is_safety = false;
    for line in text.lines() {
        is_safety = line.starts_with("//") && (is_safety || line == "// # Safety");
        if !is_safety {
            kept.push(line);
        } else if kept.last() == Some(&"//") {
            kept.pop();
        }
    }
    kept.join("\n")
}

#[test]
fn the_header_is_current() {
    let made = made();
    if std::env::var_os("LIMITSET_BLESS").is_some() {
        std::fs::write(header(), &made).unwrap();
    }
    let found = std::fs::read_to_string(header()).unwrap_or_default();
    let differs = made.lines().zip(found.lines()).position(|(made, found)| made != found);
    assert!(
        made == found,
        "ffi/c/include/limitset.h is out of date from line {:?} on: LIMITSET_BLESS=1 cargo test -p \
         limitset-c --test header",
        differs.map(|line| line + 1)
    );
}
