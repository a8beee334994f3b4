//! Waiting: in a thread that sleeps, in an event loop, or among greenlets. All of them poll the core's future; they
//! differ in their wakers.

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

/// The answer to an acquisition.
pub(crate) type Answer = Result<Held, AcquireError>;
/// The future of an answer.
pub(crate) type Coming = Pin<Box<dyn Future<Output = Answer> + Send>>;
/// Converts an answer for Python.
pub(crate) type Translate<A = Answer, T = Acquisition> =
    Box<dyn Fn(Python<'_>, A) -> PyResult<T> + Send + Sync>;

/// Polls the future once.
pub(crate) fn ask<F: Future<Output = Answer> + Unpin>(future: &mut F) -> Poll<Answer> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits for the answer without the GIL, or by gevent where it has patched the program. An exception from a signal
/// handler ends the wait; dropping the future then leaves the wait queue.
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
        // Right before the sleep: a later signal ends the sleep.
        py.check_signals()?;
        py.detach(|| sleeper.sleep());
    }
}

/// Returns the module that waits by gevent, if gevent has patched the program.
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

/// A thread that sleeps until a waker or a signal wakes it.
#[derive(Default)]
struct Sleeper {
    is_woken: AtomicU32,
}

/// The longest sleep: bounds the delay of a signal that comes between the last check and the sleep.
static LONGEST_SLEEP: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 250_000_000 };

impl Sleeper {
    /// Sleeps until a waker or a signal wakes the thread, at most for `LONGEST_SLEEP`.
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
        // Cleared before the poll that follows, so that a later wake-up is not lost.
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

/// A descriptor that an event loop watches, and the tokens of the waiters to poll. A thread of the core rings it,
/// without running Python.
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
        // SAFETY: the kernel has just created the descriptor, and no other code knows it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        Ok(Self { shared: Arc::new(Shared { descriptor, rung: Mutex::default() }) })
    }

    /// Returns the descriptor, which is readable while a waiter has to be polled.
    fn fileno(&self) -> RawFd {
        self.shared.descriptor.as_raw_fd()
    }

    /// Returns the tokens of the waiters to poll, and clears the descriptor.
    fn take(&self) -> Vec<u64> {
        // First the descriptor, then the list: a ring in between makes the descriptor readable again.
        let mut count = 0_u64;
        // SAFETY: the kernel writes eight bytes to a local, and the descriptor is open.
        unsafe { libc::read(self.fileno(), ptr::from_mut(&mut count).cast(), size_of::<u64>()) };
        std::mem::take(&mut *self.shared.rung.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Rings a bell for one waiter.
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
        // SAFETY: the kernel reads eight bytes of a local, and the descriptor is open.
        unsafe {
            libc::write(self.shared.descriptor.as_raw_fd(), ptr::from_ref(&one).cast(), size_of::<u64>())
        };
    }
}

/// A future that an event loop polls.
#[pyclass(frozen, module = "limitset._limitset")]
pub(crate) struct Pending {
    inner: Mutex<Option<Box<dyn Awaited>>>,
}

/// A future with the conversion of its answer.
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

/// Returns a coroutine that waits in an event loop.
pub(crate) fn coroutine(py: Python<'_>, pending: Pending) -> PyResult<Bound<'_, PyAny>> {
    py.import(intern!(py, "limitset._asyncio"))?.call_method1(intern!(py, "wait"), (pending,))
}

#[pymethods]
impl Pending {
    /// Polls the future. Returns the answer in a tuple, because it may be None. Without an answer, the bell rings with
    /// the token when it is time to poll again.
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
        // Taken out, because polling runs Python, and so perhaps another thread that polls it.
        let Some(mut awaited) = self.take() else {
            return Err(PyRuntimeError::new_err(
                "the wait has ended, or another thread polls it: start a new one",
            ));
        };
        let answer = awaited.poll(py, &mut Context::from_waker(&waker))?;
        if answer.is_none() {
            *self.inner.lock().unwrap_or_else(PoisonError::into_inner) = Some(awaited);
        }
        Ok(answer.map(|answer| (answer,)))
    }

    /// Ends the wait: leaves the wait queue, and returns a grant that came meanwhile.
    fn close(&self) {
        drop(self.take());
    }
}
