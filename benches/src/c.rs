//! What does the C binding add? Equal work on separate sets, from Rust and from C: a function in C that calls
//! the installed shared library, as any C program does.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use limitset::{Clock, Limit};

use crate::batches::{Plan, Row, Whose};
use crate::ours::{self, TempSet};
use crate::results::{Bench, Group};

const QUESTION: &str = "What does it add to acquire and release from C instead of Rust?";

pub fn run(plan: Plan) -> Bench {
    let calls = Calls::build().map(Rc::new);
    let groups = vec![
        group(
            "3 limits with a permit (call, tokens, connection)",
            "three/rust",
            "three/c",
            ours::usual,
            &calls,
        ),
        group("1 rate limit", "rate1/rust", "rate1/c", || vec![ours::call()], &calls),
    ];
    Bench::measure("c", QUESTION, groups, plan, None)
}

fn group(
    title: &'static str,
    rust_key: &'static str,
    c_key: &'static str,
    limits: fn() -> Vec<Limit>,
    calls: &Result<Rc<Calls>, String>,
) -> Group<Row> {
    let temp = TempSet::new(limits(), Clock::Monotonic);
    // Attached by name, as in C.
    let set = temp.attach();
    let request = ours::one_of_each(&set);
    let from_rust = Row::ours(rust_key, "from Rust", move || {
        let _temp = &temp;
        ours::take_and_give_owned(&set, &request);
    });
    let from_c = match calls {
        Ok(calls) => {
            let temp = TempSet::new(limits(), Clock::Monotonic);
            let client = calls.open(&temp);
            Row::ours(c_key, "from C", move || {
                let _temp = &temp;
                client.take_and_give();
            })
        }
        Err(why) => Row::not_run(c_key, Whose::Ours, "from C", why),
    };
    Group::new(title, rust_key, vec![from_rust, from_c])
}

/// The functions in C.
struct Calls {
    open: unsafe extern "C" fn(*const c_char, *const Amount, usize) -> *mut c_void,
    take_and_give: unsafe extern "C" fn(*const c_void),
    close: unsafe extern "C" fn(*mut c_void),
}

/// `limitset_amount` of the header.
#[repr(C)]
struct Amount {
    key: *const c_char,
    amount: u64,
}

impl Calls {
    /// Installs the binding beside the benches, builds the functions against it, and loads them.
    fn build() -> Result<Self, String> {
        let benches = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = benches.join("target/c");
        let prefix = folder.join("prefix");
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
        let mut install = Command::new(cargo);
        install.args(["run", "--quiet", "--package", "xtask", "--", "install-c", "--prefix"]).arg(&prefix);
        succeed(install.current_dir(benches.join("..")).env_remove("DESTDIR"))?;
        let library = folder.join("libcalls.so");
        let mut compile = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
        compile.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]);
        compile.arg(benches.join("src/c/calls.c")).arg("-o").arg(&library);
        compile.arg("-I").arg(prefix.join("include")).arg("-L").arg(prefix.join("lib")).arg("-llimitset");
        succeed(compile.arg(format!("-Wl,-rpath,{}", prefix.join("lib").display())))?;
        Self::load(&library)
    }

    fn load(library: &PathBuf) -> Result<Self, String> {
        let path = CString::new(library.to_string_lossy().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: the library runs only code of this project when it is loaded.
        let loaded = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if loaded.is_null() {
            return Err(format!("cannot load {}", library.display()));
        }
        let find = |name: &CStr| {
            // SAFETY: the library is loaded, and never unloaded.
            let found = unsafe { libc::dlsym(loaded, name.as_ptr()) };
            if found.is_null() { Err(format!("the library has no symbol {name:?}")) } else { Ok(found) }
        };
        let (open, take, close) =
            (find(c"bench_open")?, find(c"bench_take_and_give")?, find(c"bench_close")?);
        Ok(Self {
            // SAFETY: calls.c defines it so.
            open: unsafe { std::mem::transmute::<*mut c_void, _>(open) },
            // SAFETY: calls.c defines it so.
            take_and_give: unsafe { std::mem::transmute::<*mut c_void, _>(take) },
            // SAFETY: calls.c defines it so.
            close: unsafe { std::mem::transmute::<*mut c_void, _>(close) },
        })
    }

    /// Opens a request for one of each limit of a set, resolved in C.
    fn open(self: &Rc<Self>, temp: &TempSet) -> Client {
        let texts = |text: &str| CString::new(text).expect("no zero");
        let keys: Vec<_> = temp.set.limits().iter().map(|limit| texts(limit.name())).collect();
        let amounts: Vec<_> = keys.iter().map(|key| Amount { key: key.as_ptr(), amount: 1 }).collect();
        let name = texts(&temp.name);
        // SAFETY: texts and amounts outlive the call.
        let request = unsafe { (self.open)(name.as_ptr(), amounts.as_ptr(), amounts.len()) };
        assert!(!request.is_null(), "C cannot attach to {}", temp.name);
        Client { calls: Rc::clone(self), request }
    }
}

/// A request, held in C.
struct Client {
    calls: Rc<Calls>,
    request: *mut c_void,
}

impl Client {
    fn take_and_give(&self) {
        // SAFETY: the request is open.
        unsafe { (self.calls.take_and_give)(self.request) };
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: the request is open, and not used any more.
        unsafe { (self.calls.close)(self.request) };
    }
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|error| format!("{program}: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&done.stderr).lines().last().unwrap_or("failed")))
}
