//! Other users: who may use or look at a segment, and whose segments are refused.

use std::os::unix::fs::PermissionsExt;

use limitset::error::{AttachError, CreateError};
use limitset::{Segment, SegmentOptions};
use nix::unistd::{Gid, setgid, setgroups, setuid};

use crate::support::{TempName, Worker, listen, say};
use crate::{Skipped, as_root, options};

/// Numbers that nobody has, and need no name.
const ALICE: u32 = 54_321;
const BOB: u32 = 54_322;
const GROUP: u32 = 54_330;

/// Becomes another user, then does what it is asked to and tells what came of it.
pub(crate) fn role(arguments: &[String]) {
    let [user, group] = [0, 1].map(|index| arguments[index].parse::<u32>().unwrap());
    let name = arguments[2].as_str();
    setgroups(&[Gid::from_raw(group)]).unwrap();
    setgid(user.into()).unwrap();
    setuid(user.into()).unwrap();
    let any = options().any_owner(true);
    let mut held = Vec::new();
    loop {
        let answer = match listen().as_str() {
            "attach" => verdict(options().attach(name).map(drop)),
            "attach any" => verdict(any.attach(name).map(drop)),
            "observe" => verdict(options().observe(name).map(drop)),
            "observe any" => verdict(any.observe(name).map(drop)),
            "hold" => verdict(any.attach(name).map(|it| held.push(it.semaphore("db").unwrap().acquire(3)))),
            "remove any" => verdict(any.remove(name)),
            // A segment that others are meant to take for their own.
            "plant" => verdict(options().mode(0o666).create(name).map(drop).map_err(|error| match error {
                CreateError::Attach(error) => error,
                other => panic!("{other}"),
            })),
            _ => unreachable!(),
        };
        say(&answer);
    }
}

fn verdict(answer: Result<(), AttachError>) -> String {
    match answer {
        Ok(()) => "yes".to_owned(),
        Err(AttachError::Permission { .. }) => "no permission".to_owned(),
        Err(AttachError::Owner { found, expected, .. }) => format!("of {found}, not {expected}"),
        Err(other) => other.to_string(),
    }
}

/// A worker of another user, to be asked.
struct User(Worker);

impl User {
    fn new(user: u32, group: u32, name: &TempName) -> Self {
        Self(Worker::start("user", &[&user.to_string(), &group.to_string(), &name.0]))
    }

    fn ask(&mut self, what: &str) -> String {
        self.0.tell(what);
        self.0.hear()
    }
}

fn created(options: &SegmentOptions) -> (TempName, Segment) {
    let name = TempName::new();
    let segment = options.create(&name).unwrap();
    (name, segment)
}

pub(crate) fn closed() -> Result<(), Skipped> {
    as_root()?;
    let (name, segment) = created(&options());
    let mut alice = User::new(ALICE, GROUP, &name);
    for request in ["attach", "attach any", "observe", "observe any"] {
        assert_eq!(alice.ask(request), "no permission", "{request}");
    }
    assert_eq!(segment.participants().len(), 1);
    Ok(())
}

pub(crate) fn open_to_a_group() -> Result<(), Skipped> {
    as_root()?;
    let (name, segment) = created(&options().mode(0o660).group(GROUP));
    let db = segment.semaphore("db").unwrap();
    let (mut member, mut stranger) = (User::new(ALICE, GROUP, &name), User::new(BOB, BOB, &name));
    assert_eq!(member.ask("attach"), format!("of 0, not {ALICE}"), "it must say that it trusts others");
    assert_eq!(member.ask("hold"), "yes");
    assert_eq!(segment.participants().last().unwrap().uid, u64::from(ALICE));
    assert_eq!(stranger.ask("attach any"), "no permission");
    assert_eq!(stranger.ask("observe any"), "no permission");
    assert_eq!((db.reap().unwrap(), db.available().unwrap()), (0, 1));
    member.0.kill();
    db.acquire(4).unwrap().release().unwrap();
    Ok(())
}

pub(crate) fn watched_by_a_group() -> Result<(), Skipped> {
    as_root()?;
    let (name, segment) = created(&options().mode(0o640).group(GROUP));
    let mut member = User::new(ALICE, GROUP, &name);
    assert_eq!(member.ask("observe any"), "yes");
    assert_eq!(member.ask("observe"), format!("of 0, not {ALICE}"));
    assert_eq!(member.ask("attach any"), "no permission");
    assert_eq!(segment.participants().len(), 1);
    Ok(())
}

pub(crate) fn planted() -> Result<(), Skipped> {
    as_root()?;
    let name = TempName::new();
    let (mut alice, mut bob) = (User::new(ALICE, ALICE, &name), User::new(BOB, BOB, &name));
    assert_eq!(alice.ask("plant"), "yes");
    assert_eq!(bob.ask("attach"), format!("of {ALICE}, not {BOB}"));
    assert_eq!(bob.ask("observe"), format!("of {ALICE}, not {BOB}"));
    assert_eq!(verdict(options().attach(&name).map(drop)), format!("of {ALICE}, not 0"), "nor by root");
    let opened = options().open(&name);
    assert!(matches!(opened, Err(CreateError::Attach(AttachError::Owner { .. }))), "{opened:?}");
    let removed = Segment::remove(&name);
    assert!(matches!(removed, Err(AttachError::Owner { .. })), "{removed:?}");
    assert!(matches!(options().create(&name), Err(CreateError::Exists { .. })), "nor is it replaced");
    assert_eq!(bob.ask("attach any"), "yes", "whoever says so may");
    Ok(())
}

/// Who may unlink depends on the directory: write permission, and where it is sticky, whose it is.
pub(crate) fn removal() -> Result<(), Skipped> {
    as_root()?;
    let directory = std::env::temp_dir().join(TempName::new().0.as_str());
    let path = directory.join("limits");
    let name = TempName(path.to_str().unwrap().to_owned());
    std::fs::create_dir(&directory).unwrap();
    let set = |mode, user| {
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&directory, Some(user), None).unwrap();
    };
    let mut alice = User::new(ALICE, ALICE, &name);
    let create = |owner| {
        let segment = options().mode(0o666).create(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
        segment
    };
    let segment = create(ALICE);
    set(0o755, 0);
    assert_eq!(alice.ask("remove any"), "no permission", "her file, but not her directory");
    drop(segment.semaphore("db").unwrap().try_acquire(1).unwrap());
    set(0o1777, BOB);
    assert_eq!(alice.ask("remove any"), "yes", "her file");
    let segment = create(0);
    assert_eq!(alice.ask("remove any"), "no permission", "neither is hers");
    drop(segment.semaphore("db").unwrap().try_acquire(1).unwrap());
    set(0o1777, ALICE);
    assert_eq!(alice.ask("remove any"), "yes", "her directory");
    drop(create(BOB));
    options().any_owner(true).remove(&path).unwrap();
    std::fs::remove_dir(&directory).unwrap();
    Ok(())
}
