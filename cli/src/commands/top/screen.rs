//! Takes over the terminal, and restores it in every case: at the end, and after an error, a panic, a signal
//! or a stop.

use std::collections::VecDeque;
use std::io::{self, Stdout, Write};
use std::os::fd::AsFd;
use std::panic;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};

/// The maximum time between the bytes of one key, in milliseconds.
const REST_OF_A_KEY: u8 = 50;

/// Whether this program has taken over the terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A key that the user pressed, by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Up,
    Down,
    First,
    Last,
    OtherPanel,
    Sort,
    Turn,
    StandStill,
    Faster,
    Slower,
}

/// An event on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Key(Key),
    /// The size has changed, or the screen must be redrawn.
    Redraw,
    /// A signal that ends the program.
    Ended(i32),
    Nothing,
}

/// Owns the whole screen until it is dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    area: Rect,
    signals: SignalFd,
    before: SigSet,
    /// Keys that were pressed and not returned yet.
    keys: VecDeque<Key>,
}

impl Screen {
    pub(super) fn take_over() -> io::Result<Self> {
        let signals = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTSTP];
        let mask: SigSet = signals.into_iter().chain([Signal::SIGWINCH]).collect();
        let before = mask.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            usual(info);
        }));
        let opened = take().and_then(|()| empty());
        let (terminal, area) = opened.inspect_err(|_| give_back())?;
        Ok(Self { terminal, area, signals, before, keys: VecDeque::new() })
    }

    pub(super) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        // Checked each time, because the signal for a change of size may be late.
        if size()? != (self.area.width, self.area.height) {
            (self.terminal, self.area) = empty()?;
        }
        self.terminal.draw(picture)?;
        Ok(())
    }

    /// Waits for the next event, at most for a given time.
    pub(super) fn next_event(&mut self, at_most: Duration) -> io::Result<Event> {
        if let Some(key) = self.keys.pop_front() {
            return Ok(Event::Key(key));
        }
        let stdin = io::stdin();
        let mut sources =
            [&stdin.as_fd(), &self.signals.as_fd()].map(|it| PollFd::new(*it, PollFlags::POLLIN));
        let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
        match poll(&mut sources, timeout) {
            Ok(0) | Err(Errno::EINTR) => return Ok(Event::Nothing),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let [has_keys, has_signals] = sources.map(|it| it.any().unwrap_or(false));
        if has_signals && let Some(info) = self.signals.read_signal()? {
            let number = i32::try_from(info.ssi_signo).unwrap_or(0);
            return match Signal::try_from(number) {
                Ok(Signal::SIGWINCH) => Ok(Event::Redraw),
                Ok(Signal::SIGTSTP) => self.stop(),
                _ => Ok(Event::Ended(number)),
            };
        }
        if !has_keys {
            return Ok(Event::Nothing);
        }
        let mut bytes = [0; 64];
        match nix::unistd::read(stdin.as_fd(), &mut bytes) {
            // The terminal is gone.
            Ok(0) | Err(Errno::EIO) => Ok(Event::Ended(Signal::SIGHUP as i32)),
            Ok(mut count) => {
                // The Esc key, or the first byte of another key.
                let mut more = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
                if bytes.get(count - 1) == Some(&0x1b)
                    && poll(&mut more, REST_OF_A_KEY).is_ok_and(|it| it > 0)
                {
                    let rest = bytes.get_mut(count..).unwrap_or_default();
                    count += nix::unistd::read(stdin.as_fd(), rest).unwrap_or(0);
                }
                self.keys.extend(keys(bytes.get(..count).unwrap_or_default()));
                Ok(self.keys.pop_front().map_or(Event::Nothing, Event::Key))
            }
            Err(Errno::EINTR | Errno::EAGAIN) => Ok(Event::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Stops like any program, with the terminal restored meanwhile.
    fn stop(&mut self) -> io::Result<Event> {
        give_back();
        raise(Signal::SIGSTOP)?;
        take()?;
        (self.terminal, self.area) = empty()?;
        Ok(Event::Redraw)
    }
}

/// Returns an empty screen of the current size. It sends no query to the terminal, so it cannot block on an
/// answer.
fn empty() -> io::Result<(Terminal<CrosstermBackend<Stdout>>, Rect)> {
    let (width, height) = size()?;
    let area = Rect::new(0, 0, width, height);
    execute!(io::stdout(), Clear(ClearType::All))?;
    let options = TerminalOptions { viewport: Viewport::Fixed(area) };
    Ok((Terminal::with_options(CrosstermBackend::new(io::stdout()), options)?, area))
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
        let _ = self.before.thread_set_mask();
    }
}

fn take() -> io::Result<()> {
    TAKEN.store(true, SeqCst);
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)
}

/// Restores the terminal. Errors are ignored, because the terminal may be gone.
fn give_back() {
    if TAKEN.swap(false, SeqCst) {
        let _ = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
        let _ = io::stdout().flush();
    }
}

/// Returns the keys in the input. Unknown keys are skipped.
fn keys(mut bytes: &[u8]) -> Vec<Key> {
    const LONG: [(&[u8], Key); 10] = [
        (b"\x1b[A", Key::Up),
        (b"\x1bOA", Key::Up),
        (b"\x1b[B", Key::Down),
        (b"\x1bOB", Key::Down),
        (b"\x1b[H", Key::First),
        (b"\x1b[1~", Key::First),
        (b"\x1b[F", Key::Last),
        (b"\x1b[4~", Key::Last),
        (b"\x1b[Z", Key::OtherPanel),
        (b"\x1b\x1b", Key::Quit),
    ];
    let mut found = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        if let Some((text, key)) = LONG.iter().find(|(text, _)| bytes.starts_with(text)) {
            found.push(*key);
            bytes = bytes.get(text.len()..).unwrap_or_default();
            continue;
        }
        bytes = rest;
        found.push(match first {
            b'q' | 3 => Key::Quit,
            b'k' => Key::Up,
            b'j' => Key::Down,
            b'g' => Key::First,
            b'G' => Key::Last,
            b'\t' => Key::OtherPanel,
            b's' => Key::Sort,
            b'r' => Key::Turn,
            b' ' => Key::StandStill,
            b'+' | b'=' => Key::Faster,
            b'-' => Key::Slower,
            // A single ESC byte is the Esc key; otherwise an unknown key begins.
            0x1b if rest.is_empty() => Key::Quit,
            0x1b => {
                let end = rest.iter().skip(1).position(|byte| byte.is_ascii_alphabetic() || *byte == b'~');
                bytes = end.and_then(|end| rest.get(end + 2..)).unwrap_or_default();
                continue;
            }
            _ => continue,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart_and_unknown_ones_passed_over() {
        assert_eq!(keys(b"j\x1b[Bk\x1bOA"), [Key::Down, Key::Down, Key::Up, Key::Up]);
        assert_eq!(keys(b"\x1b"), [Key::Quit]);
        assert_eq!(keys(b"\x1b[15~s\x1b[1;5Cr"), [Key::Sort, Key::Turn], "F5 and Ctrl-Right");
        assert_eq!(keys(b"\x03\xffx"), [Key::Quit]);
    }
}
