//! tokio's `Semaphore`: permits within one process; it reads no clock.

use tokio::sync::Semaphore;

pub struct Permits(Semaphore);

impl Permits {
    pub fn new(count: usize) -> Permits {
        Permits(Semaphore::new(count))
    }

    pub fn take_and_give(&self) {
        drop(self.0.try_acquire().expect("a permit"));
    }

    pub fn denied(&self) {
        assert!(self.0.try_acquire().is_err(), "tokio granted");
    }
}

/// Three semaphores, taken one after the other: each is atomic, the three together are not.
pub struct Three([Semaphore; 3]);

impl Three {
    pub fn new() -> Three {
        Three([(); 3].map(|()| Semaphore::new(64)))
    }

    pub fn take_and_give(&self) {
        let held = self.0.each_ref().map(|it| it.try_acquire().expect("a permit"));
        drop(held);
    }
}
