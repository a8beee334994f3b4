//! Waiting: a thread that sleeps, an event loop, or greenlets. All of them wait with the core's future; what differs is
//! who is woken.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use limitset::{AcquireError, Acquisition as Held};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::{IntoPyObjectExt as _, intern};

use crate::acquisition::Acquisition;

/// What those who acquire wait for.
pub(crate) type Answer = Result<Held, AcquireError>;
/// An answer to come.
pub(crate) type Coming = Pin<Box<dyn Future<Output = Answer> + Send>>;
/// Makes of an answer what Python gets.
pub(crate) type Translate<A = Answer, T = Acquisition> =
    Box<dyn Fn(Python<'_>, A) -> PyResult<T> + Send + Sync>;

/// Asks without waiting.
pub(crate) fn ask<F: Future<Output = Answer> + Unpin>(future: &mut F) -> Poll<Answer> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits for the answer without the GIL, or as gevent does where it has taken over. Signals end it with what their
/// handlers raise; whoever drops the future then leaves the queue.
pub(crate) fn wait<F, T>(
    py: Python<'_>,
    mut future: F,
    translate: Translate<F::Output, T>,
) -> PyResult<Bound<'_, PyAny>>
where
    F: Future<Output: Send> + Unpin + Send + 'static,
    T: for<'py> IntoPyObject<'py> + 'static,
{
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(sleeper.clone());
    loop {
        let polled = py.detach(|| Pin::new(&mut future).poll(&mut Context::from_waker(&waker)));
        if let Poll::Ready(answer) = polled {
            return translate(py, answer)?.into_bound_py_any(py);
        }
        if let Some(greenlets) = greenlets(py)? {
            let pending = Pending::new(future, translate);
            return greenlets.call_method1(intern!(py, "wait"), (pending,));
        }
        // Right before the sleep: a signal that comes later ends it.
        py.check_signals()?;
        py.detach(|| sleeper.sleep());
    }
}

/// The module that waits for gevent, where gevent has patched the program.
fn greenlets(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let loaded = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    if !loaded.contains(intern!(py, "gevent.monkey"))? {
        return Ok(None);
    }
    let module = MODULE.get_or_try_init(py, || py.import("limitset._gevent").map(Bound::unbind))?;
    let module = module.bind(py).clone().into_any();
    let is_patched = module.call_method0(intern!(py, "is_patched"))?.is_truthy()?;
    Ok(is_patched.then_some(module))
}

/// A thread that sleeps until it is woken, or a signal comes.
#[derive(Default)]
struct Sleeper {
    is_woken: AtomicU32,
}

/// A signal that comes between the last look for one and the sleep does not end it; this does.
static LONGEST_SLEEP: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 250_000_000 };

impl Sleeper {
    /// Sleeps until it is woken, a signal comes, or a while has passed.
    fn sleep(&self) {
        if self.is_woken.swap(0, Acquire) != 0 {
            return;
        }
        // With a timeout the call never restarts by itself after a signal, whatever the handler asks for.
        // SAFETY: the word and the timespec are alive for the whole call; the kernel only reads them.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.is_woken.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                0,
                &raw const LONGEST_SLEEP,
            )
        };
        // Before the look that follows: who wakes us after it is not forgotten.
        self.is_woken.swap(0, Acquire);
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(1, Release);
        // SAFETY: waking only uses the address of the word, which is alive; nothing is read or written through it.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.is_woken.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            )
        };
    }
}

/// A descriptor that an event loop watches, and the numbers of those whose turn it may be. Rung by a thread of the core
/// that knows nothing of Python.
#[pyclass(frozen, module = "limitset._limitset")]
pub(crate) struct Bell {
    shared: Arc<Shared>,
}

struct Shared {
    descriptor: OwnedFd,
    rung: Mutex<Vec<u64>>,
}

#[pymethods]
impl Bell {
    #[new]
    fn new() -> PyResult<Self> {
        // SAFETY: a system call without pointers.
        let number: RawFd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if number < 0 {
            return Err(io::Error::last_os_error().into());
        }
        // SAFETY: the kernel has just made the descriptor, and nobody else knows it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        Ok(Self { shared: Arc::new(Shared { descriptor, rung: Mutex::default() }) })
    }

    /// The descriptor that is readable when somebody has to look.
    fn fileno(&self) -> RawFd {
        self.shared.descriptor.as_raw_fd()
    }

    /// Who has to look. The descriptor is silent afterwards.
    fn take(&self) -> Vec<u64> {
        // First silence, then the list: whoever rings in between rings again.
        let mut count = 0_u64;
        // SAFETY: eight bytes of our own are written, and the descriptor is open.
        unsafe { libc::read(self.fileno(), ptr::from_mut(&mut count).cast(), size_of::<u64>()) };
        std::mem::take(&mut *self.shared.rung.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Rings a bell for one of those who wait by it.
struct Ring {
    shared: Arc<Shared>,
    token: u64,
}

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        let mut rung = self.shared.rung.lock().unwrap_or_else(PoisonError::into_inner);
        rung.push(self.token);
        let one = 1_u64;
        // A full counter is readable already.
        // SAFETY: eight bytes of our own are read, and the descriptor is open.
        unsafe {
            libc::write(self.shared.descriptor.as_raw_fd(), ptr::from_ref(&one).cast(), size_of::<u64>())
        };
    }
}

/// Something to come, for those who wait in an event loop.
#[pyclass(frozen, module = "limitset._limitset")]
pub(crate) struct Pending {
    inner: Mutex<Option<Box<dyn Awaited>>>,
}

/// A future, with what makes of its answer what Python gets.
trait Awaited: Send {
    fn poll(&mut self, py: Python<'_>, context: &mut Context<'_>) -> PyResult<Option<Py<PyAny>>>;
}

impl<F, T> Awaited for (F, Translate<F::Output, T>)
where
    F: Future + Unpin + Send,
    T: for<'py> IntoPyObject<'py>,
{
    fn poll(&mut self, py: Python<'_>, context: &mut Context<'_>) -> PyResult<Option<Py<PyAny>>> {
        match Pin::new(&mut self.0).poll(context) {
            Poll::Pending => Ok(None),
            Poll::Ready(answer) => self.1(py, answer)?.into_py_any(py).map(Some),
        }
    }
}

impl Pending {
    pub(crate) fn new<F, T>(future: F, translate: Translate<F::Output, T>) -> Self
    where
        F: Future + Unpin + Send + 'static,
        T: for<'py> IntoPyObject<'py> + 'static,
    {
        Self { inner: Mutex::new(Some(Box::new((future, translate)))) }
    }

    fn take(&self) -> Option<Box<dyn Awaited>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Pending {
    /// Looks whether it has come, and gives it in a tuple, since it may be None; if not, rings the bell with the token when
    /// it is time to look again.
    #[pyo3(signature = (bell, token, /))]
    fn poll(
        &self,
        py: Python<'_>,
        bell: Option<&Bound<'_, Bell>>,
        token: u64,
    ) -> PyResult<Option<(Py<PyAny>,)>> {
        let waker = bell.map_or_else(
            || Waker::noop().clone(),
            |bell| Waker::from(Arc::new(Ring { shared: bell.get().shared.clone(), token })),
        );
        // Taken out: what follows runs Python, and so perhaps another thread that looks here.
        let Some(mut awaited) = self.take() else {
            return Err(PyRuntimeError::new_err("it is over, or looked for by another thread: ask anew"));
        };
        let answer = awaited.poll(py, &mut Context::from_waker(&waker))?;
        if answer.is_none() {
            *self.inner.lock().unwrap_or_else(PoisonError::into_inner) = Some(awaited);
        }
        Ok(answer.map(|answer| (answer,)))
    }

    /// Gives up: leaves the queue, and gives back what was granted meanwhile.
    fn close(&self) {
        drop(self.take());
    }
}
