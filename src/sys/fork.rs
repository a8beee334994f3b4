//! Noticing a fork, and acting in the child.
//!
//! A page that the kernel wipes in every forked child (MADV_WIPEONFORK) holds this process's epoch. Reading it
//! is one load, works for raw `clone` too, and needs no system call. When it reads 0 we are in a child that
//! has not looked yet: its epoch is the copied counter plus one, so that a child, its child and so on all
//! differ. (A constant would make a grandchild look like its parent.)
//!
//! Besides, children made by libc's `fork` run [`InChild::in_child`] of everything registered, before any
//! other code of the child: what must happen before privileges are dropped happens there.
//!
//! A fork may catch this module at any instruction: a raw `clone` waits for nothing, and neither does a `fork` that was
//! under way before the handlers were registered. So nothing here can be inherited locked or half changed:
//!
//! * the page is published by one compare-and-swap, before any lock is taken;
//! * the lock (the gate) is a word of that page, so every child finds it free;
//! * the registry is a list of nodes that are never freed, and each change of it is one store;
//! * the handlers are registered by one thread, and note that they are when they run. Only a child of a fork that did not
//!   run them can inherit them without that note, and registers them again; run twice, they act once.

use std::cell::Cell;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

use super::page::page_bytes;
use super::{clock, futex};

/// Epochs given out so far in this process and its ancestors.
static COUNTER: AtomicU64 = AtomicU64::new(0);
/// Null until something is attached; then never changed.
static PAGE: AtomicPtr<Page> = AtomicPtr::new(std::ptr::null_mut());
/// Whether libc runs the handlers. A child inherits this together with the handlers.
static HAS_HANDLERS: AtomicBool = AtomicBool::new(false);

/// The page that a fork wipes: every child finds zeros.
#[repr(C)]
struct Page {
    /// This process's epoch; 0 before it is first asked for.
    epoch: AtomicU64,
    /// Held while the registry changes, while a thread forks, and by actions that no fork may catch half done.
    gate: ForkLock,
    /// Held while the handlers are registered. Not the gate: libc may let the registration wait for a fork, and that fork
    /// for the gate.
    registration: ForkLock,
}

#[inline(always)]
fn page() -> Option<&'static Page> {
    // SAFETY: null, or published by `published_page`, whose page is initialized (zeros are a valid `Page`) and never
    // unmapped.
    unsafe { PAGE.load(Acquire).as_ref() }
}

/// This process's number in its line of ancestors: never the same as that of any of them.
#[inline(always)]
pub(crate) fn epoch() -> u64 {
    match page().map(|page| (page, page.epoch.load(Acquire))) {
        Some((page, 0)) => first_look(&page.epoch),
        Some((_, epoch)) => epoch,
        // Nothing was attached yet, so there is nothing to tell apart.
        None => 0,
    }
}

/// Whether this process has this epoch, which is not 0. Less work than asking for the [epoch]: a child that has not
/// looked yet finds 0, which is not the epoch of any process.
#[inline(always)]
pub(crate) fn has_epoch(epoch: u64) -> bool {
    page().is_some_and(|page| page.epoch.load(Acquire) == epoch)
}

#[cold]
fn first_look(word: &AtomicU64) -> u64 {
    let next = COUNTER.load(SeqCst) + 1;
    // The counter first: a fork between the two lines must not copy an old counter beside a wiped page.
    COUNTER.fetch_max(next, SeqCst);
    match word.compare_exchange(0, next, SeqCst, SeqCst) {
        Ok(_) => next,
        Err(epoch) => epoch,
    }
}

/// Proof that fork detection is prepared.
#[derive(Clone, Copy)]
pub(crate) struct Forks(&'static Page);

/// Prepares fork detection; to be called before anything asks for the epoch.
pub(crate) fn prepare() -> io::Result<Forks> {
    let forks = Forks(published_page()?);
    if !HAS_HANDLERS.load(Acquire) {
        forks.register_handlers()?;
    }
    Ok(forks)
}

/// The page of this process. Threads that race for the first one agree on it without a lock.
fn published_page() -> io::Result<&'static Page> {
    if let Some(page) = page() {
        return Ok(page);
    }
    let new = wiped_page()?;
    match PAGE.compare_exchange(std::ptr::null_mut(), new.as_ptr(), AcqRel, Acquire) {
        // SAFETY: zeroed, never unmapped once it is published, and only ever used through `&Page`.
        Ok(_) => Ok(unsafe { new.as_ref() }),
        Err(published) => {
            // SAFETY: the page was made above, and no other thread has seen it.
            unsafe { libc::munmap(new.as_ptr().cast(), page_bytes()) };
            // SAFETY: as in `page`; it is not null, or the exchange would have succeeded.
            Ok(unsafe { &*published })
        }
    }
}

impl Forks {
    #[cold]
    fn register_handlers(self) -> io::Result<()> {
        // While /proc can be seen.
        clock::boot_id();
        clock::time_namespace();
        let _turn = self.0.registration.lock();
        if !HAS_HANDLERS.load(Acquire) {
            // SAFETY: the handlers are functions of this library, which do only what a fork handler may.
            let code = unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
            if code != 0 {
                return Err(io::Error::from_raw_os_error(code));
            }
            HAS_HANDLERS.store(true, Release);
        }
        Ok(())
    }

    /// Runs `action` while no thread of this process can be inside libc's `fork`.
    pub(crate) fn without_forks<T>(self, action: impl FnOnce() -> T) -> T {
        let _gate = self.0.gate.lock();
        action()
    }

    /// Acts in children from now on.
    pub(crate) fn register(self, it: Arc<dyn InChild>) {
        let it = Box::new(it);
        REGISTRY.add(&self.0.gate.lock(), it);
    }

    /// Acts in children no longer.
    pub(crate) fn unregister(self, it: &Arc<impl InChild + 'static>) {
        let is_it = |other: &Arc<dyn InChild>| std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(it));
        let removed = REGISTRY.remove(&self.0.gate.lock(), is_it);
        // Not under the gate: it may be the last reference.
        drop(removed);
    }
}

/// A new page of zeros that the kernel wipes in forked children.
fn wiped_page() -> io::Result<NonNull<Page>> {
    // SAFETY: a fresh anonymous mapping without a fixed address replaces nothing.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            page_bytes(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range is exactly the mapping just made, which nobody else knows of.
    if unsafe { libc::madvise(page, page_bytes(), libc::MADV_WIPEONFORK) } != 0 {
        let error = io::Error::last_os_error();
        // SAFETY: as above; no reference into the page exists.
        unsafe { libc::munmap(page, page_bytes()) };
        return Err(error);
    }
    NonNull::new(page.cast()).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

/// Something that has to act in a forked child at once. Must neither allocate nor lock.
pub(crate) trait InChild: Send + Sync {
    /// Called in the child by libc's `fork`, while no other thread exists.
    fn in_child(&self);
}

/// A list that is whole at every instant: nodes are linked by one store, and never unlinked or freed. A node whose item
/// was removed is used again.
struct Registry {
    first: AtomicPtr<Node>,
}

struct Node {
    /// Set before the node is linked; then never changed.
    next: Option<&'static Node>,
    /// A leaked box, or null. Changed only under the gate.
    item: AtomicPtr<Arc<dyn InChild>>,
}

static REGISTRY: Registry = Registry::new();

impl Registry {
    const fn new() -> Self {
        Self { first: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn first(&self) -> Option<&'static Node> {
        // SAFETY: null, or a node that `add` has leaked whole; it is never freed.
        unsafe { self.first.load(Acquire).as_ref() }
    }

    fn nodes(&self) -> impl Iterator<Item = &'static Node> + use<> {
        std::iter::successors(self.first(), |node| node.next)
    }

    fn add(&self, _gate: &ForkGuard<'_>, it: Box<Arc<dyn InChild>>) {
        let item = Box::into_raw(it);
        // No other thread fills the node: that takes the gate.
        if let Some(node) = self.nodes().find(|node| node.item.load(Relaxed).is_null()) {
            node.item.store(item, Release);
            return;
        }
        let node = Box::new(Node { next: self.first(), item: AtomicPtr::new(item) });
        self.first.store(Box::into_raw(node), Release);
    }

    fn remove(
        &self,
        gate: &ForkGuard<'_>,
        is_it: impl Fn(&Arc<dyn InChild>) -> bool,
    ) -> Option<Box<Arc<dyn InChild>>> {
        let node = self.nodes().find(|node| node.item(gate).is_some_and(&is_it))?;
        let item = NonNull::new(node.item.swap(std::ptr::null_mut(), AcqRel))?;
        // SAFETY: `add` has leaked this box, and the pointer was taken out of the only place it was in.
        Some(unsafe { Box::from_raw(item.as_ptr()) })
    }

    /// Lets every item act.
    fn in_child(&self, gate: &ForkGuard<'_>) {
        self.nodes().filter_map(|node| node.item(gate)).for_each(|it| it.in_child());
    }
}

impl Node {
    fn item<'a>(&self, _gate: &'a ForkGuard<'_>) -> Option<&'a Arc<dyn InChild>> {
        // SAFETY: null, or a box that `add` has leaked. `remove` takes it out under the gate only, so not before `_gate`
        // is dropped.
        unsafe { self.item.load(Acquire).as_ref() }
    }
}

thread_local! {
    /// The epoch of the process if this thread holds the gate because it forks, else 0. Without a destructor, so it is there
    /// until the thread is gone.
    static FORKS_IN: Cell<u64> = const { Cell::new(0) };
}

/// Does nothing if the gate is held already: then this handler is registered twice, and runs for the second time.
extern "C" fn before_fork() {
    // The thread that registers may not have come to this yet, and the child would not know.
    HAS_HANDLERS.store(true, Release);
    if let Some(page) = page()
        && FORKS_IN.get() == 0
    {
        std::mem::forget(page.gate.lock());
        FORKS_IN.set(epoch());
    }
}

extern "C" fn after_fork() {
    if let Some(page) = page()
        && FORKS_IN.replace(0) != 0
    {
        page.gate.unlock();
    }
}

extern "C" fn in_child() {
    // A child may be in another time namespace than its parent, and about to lose sight of /proc.
    clock::time_namespace();
    let before = FORKS_IN.replace(0);
    if let Some(page) = page()
        && before != 0
    {
        // An emulator of another processor may not wipe the page. A handler that ran before may have asked for this
        // process's own epoch already, which stays.
        let _ = page.epoch.compare_exchange(before, 0, SeqCst, SeqCst);
        // The parent's hold was wiped, or has the parent's epoch on it.
        REGISTRY.in_child(&page.gate.lock());
    }
}

/// A lock within one process that a fork cannot leave locked: it carries the epoch of its holder, and a
/// holder of another epoch does not exist in this process.
pub(crate) struct ForkLock(AtomicU32);

/// Held [`ForkLock`].
pub(crate) struct ForkGuard<'a>(&'a ForkLock);

impl ForkLock {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub(crate) fn lock(&self) -> ForkGuard<'_> {
        // Never 0, and equal for two processes of one line only after four billion forks.
        let mine = u32::try_from(epoch() % u64::from(u32::MAX)).unwrap_or(0) + 1;
        let mut seen = 0;
        loop {
            match self.0.compare_exchange(seen, mine, Acquire, Relaxed) {
                Ok(_) => return ForkGuard(self),
                // Left locked by a thread of our parent, or free after all.
                Err(now) if now != mine => seen = now,
                Err(now) => {
                    futex::wait(&self.0, now, 10_000_000);
                    seen = 0;
                }
            }
        }
    }
}

impl ForkLock {
    fn unlock(&self) {
        self.0.store(0, Release);
        futex::wake(&self.0, 1);
    }
}

impl Drop for ForkGuard<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// A value that every process of a line of forks makes for itself, and keeps for ever.
pub(crate) struct PerProcess<T: 'static> {
    current: AtomicPtr<Made<T>>,
}

struct Made<T> {
    epoch: u64,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { current: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The value of this process. One that was inherited is left alone, locked or not.
    pub(crate) fn get(&self, make: impl Fn() -> T) -> &'static T {
        let epoch = epoch();
        loop {
            let found = self.current.load(Acquire);
            // SAFETY: null, or a value that was leaked below and is never freed nor changed except through `&T`.
            if let Some(made) = unsafe { found.as_ref() }
                && made.epoch == epoch
            {
                return &made.value;
            }
            let new = Box::into_raw(Box::new(Made { epoch, value: make() }));
            if self.current.compare_exchange(found, new, AcqRel, Acquire).is_err() {
                // SAFETY: made just above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_stays_the_same_within_a_process() {
        prepare().unwrap();
        assert_ne!(epoch(), 0);
        assert_eq!(epoch(), epoch());
        assert!(has_epoch(epoch()) && !has_epoch(epoch() + 1));
        assert_eq!(std::thread::spawn(epoch).join().unwrap(), epoch());
    }

    #[test]
    fn a_fork_lock_left_by_another_epoch_is_free() {
        prepare().unwrap();
        let lock = ForkLock(AtomicU32::new(77_777));
        drop(lock.lock());
        assert_eq!(lock.0.load(Relaxed), 0);
    }

    /// Counts how often it acts.
    #[derive(Default)]
    struct Counted(AtomicU32);

    impl InChild for Counted {
        fn in_child(&self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_registry_uses_its_nodes_again_and_acts_for_each_item_once() {
        prepare().unwrap();
        let gate = ForkLock::new();
        let registry = Registry::new();
        for _ in 0..3 {
            let items: Vec<Arc<Counted>> = (0..4).map(|_| Arc::default()).collect();
            items.iter().for_each(|it| registry.add(&gate.lock(), Box::new(it.clone())));
            let second = Arc::as_ptr(items.get(1).unwrap());
            let removed = registry.remove(&gate.lock(), |it| std::ptr::addr_eq(Arc::as_ptr(it), second));
            registry.in_child(&gate.lock());
            let counts: Vec<u32> = items.iter().map(|it| it.0.load(Relaxed)).collect();
            assert_eq!(counts, [1, 0, 1, 1]);
            drop(removed);
            while registry.remove(&gate.lock(), |_| true).is_some() {}
            assert!(items.iter().all(|it| Arc::strong_count(it) == 1), "nothing is kept");
            assert_eq!(registry.nodes().count(), 4);
        }
    }

    /// As a child would find them that was forked between their registration and the note of it.
    #[test]
    fn handlers_that_run_twice_for_one_fork_act_once() {
        let forks = prepare().unwrap();
        let counted = Arc::new(Counted::default());
        forks.register(counted.clone());
        before_fork();
        // SAFETY: the child only runs handlers, which are made for it, reads a count, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            in_child();
            // SAFETY: ends the child; destructors are the parent's business.
            unsafe { libc::_exit(counted.0.load(Relaxed).cast_signed()) }
        }
        after_fork();
        assert_eq!(FORKS_IN.get(), 0);
        forks.without_forks(|| {});
        let status = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child), None).unwrap();
        let once = nix::sys::wait::WaitStatus::Exited(nix::unistd::Pid::from_raw(child), 1);
        assert_eq!(status, once, "how often the child acted");
        assert_eq!(counted.0.load(Relaxed), 0, "not in the parent");
        forks.unregister(&counted);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
