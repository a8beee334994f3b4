//! `cargo xtask pictures`: draws docs/pictures/top.svg and demo.svg from the command's real output. tmux is
//! the terminal, and its screen becomes SVG. Processes, sets and deaths in the pictures are real.

mod svg;

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::test;

/// The timeout for a picture, longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Draws both pictures.
pub(crate) fn command(args: &[String]) -> io::Result<ExitCode> {
    if let Some(unknown) = args.first() {
        writeln!(io::stderr(), "xtask: unknown argument `{unknown}`: `pictures` takes none")?;
        return Ok(ExitCode::from(crate::MISUSE));
    }
    let root = test::root();
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let built =
        Command::new(cargo).args(["build", "--release", "-p", "limitset-cli"]).current_dir(&root).status()?;
    if !built.success() {
        return Ok(ExitCode::FAILURE);
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let scene = Scene::new(target.join("release"))?;
    write(&root, "demo", "The output of `limitset demo`", &scene.demo()?)?;
    write(&root, "top", "`limitset top` while ten processes share eight connections", &scene.top()?)?;
    Ok(ExitCode::SUCCESS)
}

fn write(root: &Path, name: &str, title: &str, screen: &str) -> io::Result<()> {
    let path = root.join("docs/pictures").join(format!("{name}.svg"));
    fs::write(&path, svg::draw(screen, title))?;
    writeln!(io::stdout(), "wrote docs/pictures/{name}.svg")
}

/// A terminal, and a folder with commands that have descriptive names.
struct Scene {
    folder: PathBuf,
    binaries: PathBuf,
    socket: String,
}

impl Scene {
    fn new(binaries: PathBuf) -> io::Result<Self> {
        let socket = format!("limitset-pictures-{}", std::process::id());
        let folder = std::env::temp_dir().join(&socket);
        fs::create_dir(&folder)?;
        let scene = Self { folder, binaries, socket };
        for name in ["ask", "ingest", "report"] {
            symlink("/bin/sleep", scene.folder.join(name))?;
        }
        Ok(scene)
    }

    fn demo(&self) -> io::Result<String> {
        self.open(80, 36, "limitset demo; exec sleep 1000")?;
        let screen = self.until(|screen| screen.contains("limitset --help"))?;
        self.close();
        Ok(screen)
    }

    fn top(&self) -> io::Result<String> {
        let _openai = Set::create(
            self,
            "openai",
            &["calls=450/min", "tokens=200000/min:gcra:burst=50000", "connections=8"],
            &["--config", "region=us-east-1"],
        )?;
        let _postgres = Set::create(self, "postgres", &["connections=4"], &[])?;
        let mut loops = Vec::new();
        for command in ["ask 0.9", "ask 0.7", "ask 1.3", "ingest 0.8", "ingest 1.1"] {
            for _ in 0..2 {
                loops
                    .push(Loop::start(self, &format!("limitset run openai --need tokens=500 -- {command}"))?);
            }
        }
        for _ in 0..3 {
            loops.push(Loop::start(self, "limitset run postgres -- report 2")?);
        }
        self.open(96, 24, "limitset top openai postgres")?;
        // The sparklines need a history.
        thread::sleep(Duration::from_secs(15));
        let screen = self.until(|screen| screen.contains("100%") && screen.contains("connections=1"));
        self.close();
        screen
    }

    fn path(&self) -> String {
        let before = std::env::var("PATH").unwrap_or_default();
        format!("{}:{}:{before}", self.binaries.display(), self.folder.display())
    }

    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("PATH", self.path()).env_remove("NO_COLOR");
        command
    }

    fn tmux(&self, args: &[&str]) -> io::Result<String> {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.socket, "-f", "/dev/null"]).args(args);
        let command = command.env("PATH", self.path()).env("LC_ALL", "C.UTF-8").env_remove("NO_COLOR");
        let output = command.env_remove("TMUX").output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(io::Error::other(format!("tmux {args:?}: {}", String::from_utf8_lossy(&output.stderr))))
    }

    fn open(&self, width: u32, height: u32, line: &str) -> io::Result<()> {
        let (width, height) = (width.to_string(), height.to_string());
        self.tmux(&["new-session", "-d", "-x", &width, "-y", &height, line]).map(drop)
    }

    fn until(&self, is_there: impl Fn(&str) -> bool) -> io::Result<String> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if is_there(&self.tmux(&["capture-pane", "-p"])?) {
                return self.tmux(&["capture-pane", "-p", "-e"]);
            }
            thread::sleep(Duration::from_millis(50));
        }
        Err(io::Error::other("timed out: the expected screen did not appear"))
    }

    fn close(&self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.close();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A set for the pictures, removed on drop. Creating it fails if a set of that name exists.
struct Set<'a> {
    scene: &'a Scene,
    name: &'a str,
}

impl<'a> Set<'a> {
    fn create(scene: &'a Scene, name: &'a str, limits: &[&str], more: &[&str]) -> io::Result<Self> {
        let mut command = Command::new(scene.binaries.join("limitset"));
        command.args(["create", name]).args(more).stdout(Stdio::null());
        for limit in limits {
            command.args(["--limit", limit]);
        }
        if command.status()?.success() {
            return Ok(Self { scene, name });
        }
        Err(io::Error::other(format!(
            "cannot create set {name}: remove the existing set of that name with `limitset rm {name}`"
        )))
    }
}

impl Drop for Set<'_> {
    fn drop(&mut self) {
        let mut command = Command::new(self.scene.binaries.join("limitset"));
        let _ = command.args(["rm", "--force", self.name]).stdout(Stdio::null()).status();
    }
}

/// Runs a command in a loop until this is dropped or the command fails.
struct Loop(Child);

impl Loop {
    fn start(scene: &Scene, line: &str) -> io::Result<Self> {
        // The loop is finite, so that it ends even if this process is killed.
        let mut command = scene.shell(&format!("for i in $(seq 60); do {line} || exit; done"));
        command.stdin(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn()?))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
