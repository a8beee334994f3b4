//! SysV semaphores with SEM_UNDO: permits between processes that the kernel returns when a process dies.
//! Several of a set are taken by one call, all or none. This is the only rival with the guarantees of our
//! permits.

use std::io;

use libc::{IPC_NOWAIT, IPC_PRIVATE, IPC_RMID, SEM_UNDO, SETVAL, sembuf};

pub struct Sysv {
    id: i32,
    take: Vec<sembuf>,
    give: Vec<sembuf>,
}

impl Sysv {
    /// Creates `count` semaphores, each with this many permits.
    pub fn new(count: u16, permits: i32) -> Result<Sysv, String> {
        // SAFETY: no pointers.
        let id = unsafe { libc::semget(IPC_PRIVATE, i32::from(count), 0o600) };
        if id == -1 {
            return Err(format!("no SysV semaphores: {}", io::Error::last_os_error()));
        }
        for index in 0..count {
            // SAFETY: SETVAL takes a number.
            unsafe { libc::semctl(id, i32::from(index), SETVAL, permits) };
        }
        let each = |by: i16| {
            let flags = (SEM_UNDO | IPC_NOWAIT) as i16;
            (0..count).map(|sem_num| sembuf { sem_num, sem_op: by, sem_flg: flags }).collect()
        };
        Ok(Sysv { id, take: each(-1), give: each(1) })
    }

    fn operate(&self, operations: &[sembuf]) -> bool {
        // The kernel only reads them.
        let first = operations.as_ptr().cast_mut();
        // SAFETY: as many operations as said.
        unsafe { libc::semop(self.id, first, operations.len()) == 0 }
    }

    pub fn take_and_give(&self) {
        assert!(self.operate(&self.take), "SysV refused: {}", io::Error::last_os_error());
        assert!(self.operate(&self.give), "SysV: {}", io::Error::last_os_error());
    }

    pub fn denied(&self) {
        assert!(!self.operate(&self.take), "SysV granted");
    }

    /// Waits for a permit of one semaphore. Returns false after a second.
    pub fn wait(&self, from: u16) -> bool {
        let mut take = sembuf { sem_num: from, sem_op: -1, sem_flg: 0 };
        let second = libc::timespec { tv_sec: 1, tv_nsec: 0 };
        // SAFETY: one operation, and a timespec that outlives the call.
        unsafe { libc::syscall(libc::SYS_semtimedop, self.id, &raw mut take, 1, &raw const second) == 0 }
    }

    /// Adds a permit to one semaphore.
    pub fn post(&self, to: u16) {
        let mut give = sembuf { sem_num: to, sem_op: 1, sem_flg: 0 };
        // SAFETY: one operation.
        unsafe { libc::semop(self.id, &raw mut give, 1) };
    }

    /// Takes all permits.
    pub fn drain(&self) {
        for index in 0..self.take.len() {
            // SAFETY: SETVAL takes a number.
            unsafe { libc::semctl(self.id, index as i32, SETVAL, 0) };
        }
    }
}

impl Drop for Sysv {
    fn drop(&mut self) {
        // SAFETY: no pointers.
        unsafe { libc::semctl(self.id, 0, IPC_RMID) };
    }
}
