//! Rules about the source, as tests. Each rule is a function from a file's text to the lines that
//! break it; one test holds the repository to it, and one shows that it can fail.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests stop at the first surprise, like the tests"
)]

use std::fs;
use std::path::{Path, PathBuf};

/// A file of the repository: its path from the root, with `/`, and its text.
struct File {
    path: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files with the extension, but for build output and hidden folders.
fn files(extension: &str) -> Vec<File> {
    let mut folders = vec![root().to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|e| e == extension) {
                let text = fs::read_to_string(&path).expect("text in UTF-8");
                let path = path.strip_prefix(root()).expect("a path under the root");
                found.push(File { path: path.to_string_lossy().into_owned(), text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn rust_files_under(folder: &str) -> Vec<File> {
    let found: Vec<File> = files("rs").into_iter().filter(|file| file.path.starts_with(folder)).collect();
    assert!(!found.is_empty(), "no .rs file under {folder:?}: the rule would hold for nothing");
    found
}

/// Fails with every place where one of the files breaks the rule.
fn hold(rule: &str, files: &[File], broken_at: impl Fn(&File) -> Vec<usize>) {
    let mut places = Vec::new();
    for file in files {
        places.extend(broken_at(file).into_iter().map(|line| format!("  {}:{line}", file.path)));
    }
    assert!(places.is_empty(), "{rule}:\n{}", places.join("\n"));
}

/// Numbers, from 1, of the lines for which `bad` holds.
fn lines_where(text: &str, bad: impl Fn(&str) -> bool) -> Vec<usize> {
    text.lines().enumerate().filter(|(_, line)| bad(line)).map(|(index, _)| index + 1).collect()
}

/// The text with comments, strings and characters blanked, line for line and column for column.
fn code_of(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let after_word = at > 0 && is_word(chars[at - 1]);
        let end = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => line_end(&chars, at),
            '/' if chars.get(at + 1) == Some(&'*') => block_comment_end(&chars, at),
            '"' => string_end(&chars, at),
            '\'' => char_end(&chars, at),
            'r' if !after_word => raw_string_end(&chars, at).unwrap_or(at),
            'b' | 'c' if !after_word && chars.get(at + 1) == Some(&'r') => {
                raw_string_end(&chars, at + 1).unwrap_or(at)
            }
            _ => at,
        };
        if end == at {
            code.push(chars[at]);
            at += 1;
        } else {
            code.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    code
}

fn line_end(chars: &[char], at: usize) -> usize {
    (at..chars.len()).find(|i| chars[*i] == '\n').unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let (mut depth, mut i) = (0, at);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], at: usize) -> usize {
    let mut i = at + 1;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

/// The end of a character literal; `at` itself where the quote begins a lifetime.
fn char_end(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), _) => {
            let close = (at + 3..chars.len()).find(|i| chars[*i] == '\'');
            close.map_or(chars.len(), |i| i + 1)
        }
        (Some(_), Some('\'')) => at + 3,
        _ => at,
    }
}

/// The end of `r"..."` or `r#"..."#`; none where no raw string begins.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    let open = at + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes = |i: &usize| chars[*i] == '"' && chars[i + 1..].iter().take(hashes).all(|c| *c == '#');
    Some((open + 1..chars.len()).find(closes).map_or(chars.len(), |i| i + 1 + hashes))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where `needle` stands in `text` with no letter, digit or underscore before or after it.
fn words(text: &str, needle: &str) -> Vec<usize> {
    let free = |at: &usize| {
        !text[..*at].chars().next_back().is_some_and(is_word)
            && !text[at + needle.len()..].chars().next().is_some_and(is_word)
    };
    text.match_indices(needle).map(|(at, _)| at).filter(free).collect()
}

fn has_word(text: &str, needle: &str) -> bool {
    !words(text, needle).is_empty()
}

fn line_at(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

// ---- unsafe ----

fn uses_of_unsafe(text: &str) -> Vec<usize> {
    lines_where(&code_of(text), |line| has_word(line, "unsafe"))
}

#[test]
fn unsafe_lives_in_sys() {
    let outside: Vec<File> =
        rust_files_under("src/").into_iter().filter(|file| !file.path.starts_with("src/sys/")).collect();
    hold("move it to src/sys", &outside, |file| uses_of_unsafe(&file.text));
}

#[test]
fn unsafe_is_seen_in_code_and_only_there() {
    let good = "#![deny(unsafe_code)]\n// unsafe {\n/* a /* unsafe */ unsafe */\nlet a = \"unsafe { \\\" unsafe\";\n\
                let b = br#\"\" unsafe \"#; let c = '\"'; fn f<'a>(s: &'a str) {} // 'unsafe\n";
    assert_eq!(uses_of_unsafe(good), []);
    let bad = "let a = '\"'; unsafe { f() };\nlet r = \"\\\\\"; unsafe fn g() {}\nlet x = '\\'';\n\
               fn h<'a>() { unsafe{} }\n";
    assert_eq!(uses_of_unsafe(bad), [1, 2, 4]);
}

/// Lines of `unsafe` blocks and impls that no `SAFETY` comment stands directly above.
fn unsafe_without_reason(text: &str) -> Vec<usize> {
    let code = code_of(text);
    let (lines, code_lines): (Vec<&str>, Vec<&str>) = (text.lines().collect(), code.lines().collect());
    let argued = |line: &usize| has_safety_comment_above(&lines, &code_lines, line - 1);
    let needs_one = |at: &usize| {
        let next = code[at + "unsafe".len()..].trim_start();
        next.starts_with('{') || words(next, "impl").first() == Some(&0)
    };
    let places = words(&code, "unsafe").into_iter().filter(needs_one).map(|at| line_at(&code, at));
    places.filter(|line| !argued(line)).collect()
}

/// Goes up from the line over attributes and over the beginning of its statement.
fn has_safety_comment_above(lines: &[&str], code: &[&str], mut at: usize) -> bool {
    let mut in_attribute = false;
    while at > 0 {
        at -= 1;
        let (line, code) = (lines[at].trim(), code[at].trim());
        if line.starts_with("//") {
            // The comment may be long: its first line is what matters.
            let comment = lines[..=at].iter().rev().take_while(|line| line.trim().starts_with("//"));
            return comment.into_iter().any(|line| line.trim().starts_with("// SAFETY:"));
        }
        let begins_attribute = code.starts_with("#[");
        in_attribute = (in_attribute || code.ends_with(")]")) && !begins_attribute;
        let ends_statement = code.is_empty() || code.ends_with([';', '{', '}']);
        let ends_item = code.ends_with(',') && !in_attribute;
        if ends_statement || ends_item {
            return false;
        }
    }
    false
}

#[test]
fn every_unsafe_block_and_impl_in_sys_argues_its_case() {
    hold("put `// SAFETY:` directly above", &rust_files_under("src/sys/"), |file| {
        unsafe_without_reason(&file.text)
    });
}

#[test]
fn an_unargued_unsafe_is_seen() {
    let good = "// SAFETY: the pointer\n// is valid.\nlet a = unsafe { *p };\n// SAFETY: b\n#[allow(\n    x,\n\
                )]\n#[inline]\nunsafe impl Send for A {}\n// SAFETY: c\nlet x =\n    unsafe { f() };\n\
                unsafe fn g() {}\nunsafe extern \"C\" {}\n";
    assert_eq!(unsafe_without_reason(good), []);
    let bad = "let a = unsafe { *p };\n// SAFETY: b\n\nunsafe impl Send for A {}\n// SAFETY: c\nf();\nunsafe\n{\n\
               }\n// why: d\nunsafe { g() };\n// SAFETY: e\nunsafe impl Send for B {}\nunsafe impl Sync for B {}\n";
    assert_eq!(unsafe_without_reason(bad), [1, 4, 7, 11, 14]);
}

fn denies_unsafe(text: &str) -> bool {
    let code: String = code_of(text).split_whitespace().collect();
    code.split("#![deny(").skip(1).any(|list| {
        let list = list.split(")]").next().unwrap_or_default();
        list.split(',').any(|lint| lint == "unsafe_code")
    })
}

#[test]
fn the_crate_root_denies_unsafe_code() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).expect("src/lib.rs");
    assert!(denies_unsafe(&lib), "src/lib.rs:1: add #![deny(unsafe_code)]");
}

#[test]
fn a_root_that_does_not_deny_unsafe_code_is_seen() {
    assert!(denies_unsafe("//! Doc.\n#![deny(\n    missing_docs,\n    unsafe_code,\n)]\n"));
    for bad in ["", "// #![deny(unsafe_code)]", "#![allow(unsafe_code)]", "#![deny(x)]\n#[deny(unsafe_code)]"]
    {
        assert!(!denies_unsafe(bad), "{bad}");
    }
}

// ---- every file ----

/// Line 1 where the file does not say what it is. A file that another one includes by name cannot
/// carry `//!`: a plain comment will do there.
fn no_opening(text: &str, is_included: bool) -> Vec<usize> {
    let first = text.lines().next().unwrap_or_default();
    let plain = first.starts_with("//") && !first.starts_with("///");
    if first.starts_with("//!") || (is_included && plain) { vec![] } else { vec![1] }
}

fn includes(text: &str, name: &str) -> bool {
    let (slashed, bare) = (format!("/{name}\""), format!("\"{name}\""));
    text.lines().any(|line| {
        let by_name = line.contains(&slashed) || line.contains(&bare);
        by_name && (line.contains("include") || line.contains("#[path"))
    })
}

#[test]
fn every_file_opens_by_saying_what_it_is() {
    let all = rust_files_under("");
    hold("open the file with `//!`", &all, |file| {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        no_opening(&file.text, all.iter().any(|other| includes(&other.text, name)))
    });
}

#[test]
fn a_file_without_an_opening_is_seen() {
    assert_eq!(no_opening("//! Words.\n", false), []);
    assert_eq!(no_opening("// Words.\n", true), []);
    for bad in ["", "use std::fs;\n", "\n//! Late.\n", "/// Of an item.\n", "// Words.\n"] {
        assert_eq!(no_opening(bad, false), [1], "{bad}");
    }
    assert_eq!(no_opening("/// Of an item.\n", true), [1]);
    assert!(includes("include!(\"../a/b.rs\");", "b.rs") && includes("#[path = \"b.rs\"]", "b.rs"));
    assert!(!includes("include!(\"ab.rs\"); mod b;", "b.rs"));
}

const MOST_LINES: usize = 600;
const MOST_LINES_IN_SRC: usize = 450;

/// The first line too many.
fn too_long(path: &str, text: &str) -> Vec<usize> {
    let most = if path.starts_with("src/") { MOST_LINES_IN_SRC } else { MOST_LINES };
    if text.lines().count() > most { vec![most + 1] } else { vec![] }
}

#[test]
fn no_file_is_too_long_to_read() {
    hold("split the file", &rust_files_under(""), |file| too_long(&file.path, &file.text));
}

#[test]
fn a_long_file_is_seen() {
    assert_eq!(too_long("src/a.rs", &"\n".repeat(450)), []);
    assert_eq!(too_long("src/a.rs", &"\n".repeat(451)), [451]);
    assert_eq!(too_long("tests/a.rs", &"\n".repeat(600)), []);
    assert_eq!(too_long("tests/src/a.rs", &"\n".repeat(601)), [601]);
}

/// Marks of unfinished work and switched-off tests, built so that this file holds none itself.
fn unfinished_marks() -> [String; 3] {
    [["TO", "DO"].concat(), ["FIX", "ME"].concat(), ["X"; 3].concat()]
}

fn switched_off() -> String {
    ["#[", "ignore"].concat()
}

fn unfinished(text: &str) -> Vec<usize> {
    let (marks, off) = (unfinished_marks(), switched_off());
    lines_where(text, |line| line.contains(&off) || marks.iter().any(|mark| has_word(line, mark)))
}

#[test]
fn nothing_is_left_for_later_and_no_test_is_switched_off() {
    hold("finish it, or track it elsewhere", &rust_files_under(""), |file| unfinished(&file.text));
}

#[test]
fn unfinished_work_is_seen() {
    for mark in unfinished_marks() {
        assert_eq!(unfinished(&format!("fn a() {{}}\n// {mark}: later\n")), [2], "{mark}");
        assert_eq!(unfinished(&format!("let name = \"a.{mark}{mark}\";\n")), [], "{mark}");
    }
    let off = switched_off();
    assert_eq!(unfinished(&format!("{off}]\n\n#[test]\n{off} = \"slow\"]\n")), [1, 4]);
}

// ---- the protocol does not know the machine ----

fn loom_configuration(text: &str) -> Vec<usize> {
    let in_code = lines_where(&code_of(text), |line| line.contains("cfg") && has_word(line, "loom"));
    let anywhere = lines_where(text, |line| line.contains("cfg(loom"));
    let mut all = [in_code, anywhere].concat();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn the_product_is_the_same_under_the_model_checker() {
    hold("pass an environment instead", &rust_files_under("src/"), |file| loom_configuration(&file.text));
}

#[test]
fn a_configuration_for_the_model_checker_is_seen() {
    let bad = "#[cfg(loom)]\nuse a;\n#[cfg(not(loom))]\n#[cfg_attr(loom, b)]\n#[cfg(any(test, loom))]\n";
    assert_eq!(loom_configuration(bad), [1, 3, 4, 5]);
    assert_eq!(
        loom_configuration("// loom runs this under a cfg of its own\n#[cfg(test)]\nlet bloom = 1;\n"),
        []
    );
}

const MACHINE_CRATES: [&str; 2] = ["libc", "nix"];
const MACHINE_MODULES: [&str; 4] = ["fs", "os", "process", "thread"];

fn uses_of_the_machine(text: &str) -> Vec<usize> {
    let code = code_of(text);
    let mut places: Vec<usize> = MACHINE_CRATES.iter().flat_map(|name| words(&code, name)).collect();
    for std in words(&code, "std") {
        let Some(path) = code[std + "std".len()..].trim_start().strip_prefix("::") else { continue };
        let start = code.len() - path.len();
        let named = first_segments(path).into_iter().filter(|(_, name)| MACHINE_MODULES.contains(name));
        places.extend(named.map(|(at, _)| start + at));
    }
    let mut lines: Vec<usize> = places.into_iter().map(|at| line_at(&code, at)).collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// The names right below a path: `fs` in `fs::File`, `fs` and `io` in `{fs::File, io}`.
fn first_segments(path: &str) -> Vec<(usize, &str)> {
    let word_at = |at: usize| {
        let begin = at + path[at..].len() - path[at..].trim_start().len();
        let length = path[begin..].find(|c| !is_word(c)).unwrap_or(path.len() - begin);
        (begin, &path[begin..begin + length])
    };
    if !path.trim_start().starts_with('{') {
        return vec![word_at(0)];
    }
    let (mut depth, mut found) = (0, Vec::new());
    for (at, c) in path.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 && c == '}' {
            break;
        }
        if depth == 1 && (c == ',' || (c == '{' && found.is_empty())) {
            found.push(word_at(at + 1));
        }
    }
    found
}

#[test]
fn the_protocol_reaches_the_machine_only_through_its_environment() {
    hold("ask the environment", &rust_files_under("src/protocol/"), |file| uses_of_the_machine(&file.text));
}

#[test]
fn a_use_of_the_machine_is_seen() {
    let bad = "use std::fs::File;\nuse libc;\nlet a = ::nix::sys();\nuse std::{\n    cell::{Cell, fs},\n    thread,\n\
               };\nstd::process::abort();\nuse std :: { os::unix::x };\n";
    assert_eq!(uses_of_the_machine(bad), [1, 2, 3, 6, 8, 9]);
    let good = "// libc, std::fs\nuse std::sync::{atomic, fs};\nlet unix = \"nix\";\nuse std::{fmt, hint};\n\
                let thread = process(os);\n";
    assert_eq!(uses_of_the_machine(good), []);
}

// ---- layers ----

/// The layers of `src/`, lowest first: a module may name the modules of lower layers, and itself.
const LAYERS: &[&[&str]] = &[
    &["algorithm", "code", "protocol"],
    &["limit", "sys"],
    &["format"],
    &["engine"],
    &["segment"],
    &["audit", "interop", "shared"],
    &["api", "sync"],
    &["pool", "queue"],
    &["prefork"],
];

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Lines that name a module of the same layer or of a higher one.
fn names_upwards(path: &str, text: &str) -> Vec<usize> {
    let module = path.trim_start_matches("src/").split(['/', '.']).next().unwrap_or_default();
    let Some(own) = layer(module) else { return if module == "lib" { vec![] } else { vec![1] } };
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.contains("#[cfg(test)]") {
            break;
        }
        let code = line.split("//").next().unwrap_or_default();
        let mut named = code.match_indices("crate::").map(|(at, it)| {
            code[at + it.len()..]
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .next()
                .unwrap_or_default()
        });
        if named.any(|named| named != module && layer(named).is_some_and(|other| other >= own)) {
            found.push(number + 1);
        }
    }
    found
}

#[test]
fn modules_name_lower_layers_only() {
    let is_source = |file: &&File| !file.path.contains("tests");
    let files: Vec<_> = rust_files_under("src/").into_iter().filter(|file| is_source(&file)).collect();
    hold("a lower layer must not know a higher one", &files, |file| names_upwards(&file.path, &file.text));
}

#[test]
fn a_name_of_a_higher_layer_is_seen() {
    assert_eq!(names_upwards("src/engine/a.rs", "use crate::limit::X;\nuse crate::segment::Y;\n"), [2]);
    assert_eq!(
        names_upwards("src/limit/a.rs", "use crate::sys::clock;\n// crate::api\nuse crate::code::C;\n"),
        [1]
    );
    assert_eq!(names_upwards("src/unknown/a.rs", ""), [1]);
    assert_eq!(names_upwards("src/api/a.rs", "#[cfg(test)]\nmod tests { use crate::pool::P; }\n"), []);
}

// ---- links ----

/// Line and target of each link to a path, outside code: `[a](b.md)` and `[a]: b.md`.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Every other piece between backticks is code.
        let prose = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        let inline = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let definition = prose.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]:"));
        for target in inline.chain(definition.map(|(_, target)| target)) {
            // A title may follow the path, and an anchor end it.
            let path = target.split_whitespace().next().unwrap_or_default().trim_matches(['<', '>']);
            let path = path.split('#').next().unwrap_or_default();
            if !path.is_empty() && !path.contains("://") && !path.starts_with("mailto:") {
                found.push((index + 1, path.to_owned()));
            }
        }
    }
    found
}

/// Lines of links that lead nowhere, for a page in `folder`.
fn dead_links(text: &str, folder: &Path) -> Vec<usize> {
    let target = |path: &str| match path.strip_prefix('/') {
        Some(from_root) => root().join(from_root),
        None => folder.join(path),
    };
    links(text).into_iter().filter(|(_, path)| !target(path).exists()).map(|(line, _)| line).collect()
}

#[test]
fn every_link_between_the_documents_leads_somewhere() {
    let mut pages = files("md");
    pages.retain(|file| file.path == "README.md" || file.path.starts_with("docs/"));
    hold("the link leads nowhere", &pages, |file| {
        let page: PathBuf = root().join(&file.path);
        dead_links(&file.text, page.parent().expect("a folder"))
    });
}

#[test]
fn a_dead_link_is_seen() {
    let good = "[a](tests/tidy.rs) [b](https://example.org/x) [c](#below) [d](src/lib.rs#L1 \"title\")\n\
                [e](/Cargo.toml) `[f](nowhere)`\n```\n[g](nowhere)\n```\n[h]: src\n[i]: <https://example.org>\n";
    assert_eq!(dead_links(good, root()), []);
    let bad = "[a](nowhere.md)\n\ntext [b](src) and [c](docs/nowhere.md#x)\n[d]: ../nowhere/at/all\n[e](/nowhere)\n";
    assert_eq!(dead_links(bad, root()), [1, 3, 4, 5]);
}
