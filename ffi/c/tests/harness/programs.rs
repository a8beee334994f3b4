//! Building and running C programs against the installed library.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, OnceLock};

/// How a program is built and run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Variant {
    C11,
    Cpp17,
    Static,
    /// The release build, as it is installed, under valgrind.
    Valgrind,
    /// The debug build under valgrind.
    ValgrindDebug,
}

impl Variant {
    pub(crate) const ALL: [Self; 5] =
        [Self::C11, Self::Cpp17, Self::Static, Self::Valgrind, Self::ValgrindDebug];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::C11 => "c11",
            Self::Cpp17 => "cpp17",
            Self::Static => "static",
            Self::Valgrind => "valgrind",
            Self::ValgrindDebug => "valgrind_debug",
        }
    }

    fn is_under_valgrind(self) -> bool {
        matches!(self, Self::Valgrind | Self::ValgrindDebug)
    }

    /// The compiler, and the language.
    fn compiler(self) -> (String, [&'static str; 3]) {
        match self {
            Self::Cpp17 => (tool("CXX", "c++"), ["-std=c++17", "-x", "c++"]),
            _ => (tool("CC", "cc"), ["-std=c11", "-x", "c"]),
        }
    }
}

pub(crate) const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];
/// What the static library needs besides itself; limitset.pc says the same.
const STATIC_NEEDS: [&str; 7] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];
/// Of valgrind, for what it found.
const FOUND: i32 = 99;

fn tool(variable: &str, usual: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| usual.to_owned())
}

/// Where the package is.
pub(crate) fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder of this run's own, under the build directory.
pub(crate) fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    SCRATCH.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-tests-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    })
}

/// Removes that folder.
pub(crate) fn clean_up() {
    let _ = std::fs::remove_dir_all(scratch());
}

/// Where the library is installed; does that first, by the project's own command.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = scratch().join("prefix");
        let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
        let line = ["run", "--quiet", "--package", "xtask", "--", "install-c", "--prefix"];
        let mut install = Command::new(cargo);
        install.args(line).arg(&prefix).current_dir(folder().join("../..")).env_remove("DESTDIR");
        let done = install.output().unwrap();
        assert!(done.status.success(), "install-c failed:\n{}", String::from_utf8_lossy(&done.stderr));
        prefix
    })
}

/// Why nothing can be compiled, if so.
pub(crate) fn missing_compiler() -> Option<String> {
    [Variant::C11, Variant::Cpp17].into_iter().find_map(|variant| {
        let (compiler, _) = variant.compiler();
        let answer = Command::new(&compiler).arg("--version").output();
        answer
            .is_err()
            .then(|| format!("there is no {compiler}: install a C and a C++ compiler, or set CC and CXX"))
    })
}

/// Whether valgrind can be run.
fn has_valgrind() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| Command::new("valgrind").arg("--version").output().is_ok())
}

/// The program of a source file, built once.
pub(crate) fn compiled(source: &Path, variant: Variant) -> PathBuf {
    type Built = HashMap<(PathBuf, Variant), Arc<OnceLock<PathBuf>>>;
    static BUILT: Mutex<Option<Built>> = Mutex::new(None);
    // The same program, run otherwise.
    let variant = if variant.is_under_valgrind() { Variant::C11 } else { variant };
    let key = (source.to_owned(), variant);
    let cell = BUILT.lock().unwrap().get_or_insert_default().entry(key).or_default().clone();
    cell.get_or_init(|| compile(source, variant)).clone()
}

fn compile(source: &Path, variant: Variant) -> PathBuf {
    let (compiler, language) = variant.compiler();
    let stem = source.file_stem().unwrap().to_string_lossy();
    let program = scratch().join(format!("{stem}-{}", variant.name()));
    let lib = prefix().join("lib");
    let mut command = Command::new(compiler);
    command.args(WARNINGS).args(["-g", "-pthread"]).args(language).arg(source).args(["-x", "none"]);
    command.arg("-I").arg(prefix().join("include")).arg("-o").arg(&program);
    if variant == Variant::Static {
        command.arg(lib.join("liblimitset.a")).args(STATIC_NEEDS);
    } else {
        command.arg("-L").arg(&lib).arg("-llimitset");
        command.arg(format!("-Wl,-rpath,{}", lib.display()));
    }
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{} does not compile as {}:\n{said}", source.display(), variant.name());
    program
}

/// The command that runs a program; none if valgrind is wanted and not there.
pub(crate) fn command(source: &Path, variant: Variant) -> Option<Command> {
    let program = compiled(source, variant);
    if !variant.is_under_valgrind() {
        return Some(Command::new(program));
    }
    if !has_valgrind() {
        return None;
    }
    let mut command = Command::new("valgrind");
    // Fair: else the thread that spins for a lock keeps the one that holds it from running, for seconds.
    command.args(["--quiet", "--fair-sched=try"]).arg(format!("--error-exitcode={FOUND}"));
    // A forked child has lost what belonged to the other threads of its parent.
    if source.file_stem().is_some_and(|stem| stem != "forks") {
        command.args(["--leak-check=full", "--errors-for-leak-kinds=definite"]);
    }
    if variant == Variant::ValgrindDebug {
        command.env("LD_LIBRARY_PATH", debug_library());
    }
    command.arg(program);
    Some(command)
}

/// Where the library of the debug build is, by its soname.
fn debug_library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let here = scratch().join("debug");
        std::fs::create_dir_all(&here).unwrap();
        let soname = std::fs::read_link(prefix().join("lib/liblimitset.so")).unwrap();
        let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--package", "limitset-c"]).current_dir(folder().join("../.."));
        let done = build.output().unwrap();
        assert!(done.status.success(), "no debug build:\n{}", String::from_utf8_lossy(&done.stderr));
        // These tests are in target/PROFILE/deps.
        let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
        let built = target.join("debug/liblimitset.so");
        std::os::unix::fs::symlink(&built, here.join(soname)).unwrap();
        assert!(built.exists(), "{} is not there", built.display());
        here
    })
}

/// Says loudly that valgrind is missing.
pub(crate) fn skip_valgrind(what: &str) {
    crate::skip(what, "there is no valgrind: install it");
}

/// Runs a program to its end, which must be a good one; gives what it said. None: it was skipped.
pub(crate) fn run(source: &Path, variant: Variant, arguments: &[&str]) -> Option<String> {
    let Some(mut command) = command(source, variant) else {
        skip_valgrind(&format!("{} {}", source.display(), arguments.join(" ")));
        return None;
    };
    let Output { status, stdout, stderr } = command.args(arguments).output().unwrap();
    let (said, complaints) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{} {arguments:?}: {status}\n{said}{complaints}", source.display());
    Some(said.into_owned())
}
