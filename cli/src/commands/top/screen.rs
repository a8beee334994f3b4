//! The terminal: taken over, and given back whatever happens: an end, an error, a panic, a signal, a stop.

use std::io::{self, Stdout, Write};
use std::panic;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::{Frame, Terminal};

/// A signal is noticed after this at the latest.
const SLICE: Duration = Duration::from_millis(100);

/// Whether the terminal is ours.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// What the user wants.
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

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Key(Key),
    /// The size is another, or the screen has to be drawn again.
    Redraw,
    /// A signal that ends programs.
    Ended(i32),
    Nothing,
}

/// The whole screen, until it is dropped.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    signals: SignalFd,
    before: SigSet,
}

impl Screen {
    pub(super) fn take_over() -> io::Result<Self> {
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTSTP] {
            mask.add(signal);
        }
        // Before any thread there may be.
        let before = mask.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            usual(info);
        }));
        take()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        if terminal.is_err() {
            give_back();
        }
        Ok(Self { terminal: terminal?, signals, before })
    }

    pub(super) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(picture)?;
        Ok(())
    }

    /// Waits for something to happen, at most for a time.
    pub(super) fn next_event(&mut self, at_most: Duration) -> io::Result<Event> {
        let until = Instant::now() + at_most;
        loop {
            if let Some(info) = self.signals.read_signal()? {
                let number = i32::try_from(info.ssi_signo).unwrap_or(0);
                if number != Signal::SIGTSTP as i32 {
                    return Ok(Event::Ended(number));
                }
                give_back();
                raise(Signal::SIGSTOP)?;
                take()?;
                self.terminal.clear()?;
                return Ok(Event::Redraw);
            }
            let left = until.saturating_duration_since(Instant::now());
            if event::poll(left.min(SLICE))? {
                return Ok(meaning(&event::read()?));
            }
            if left.is_zero() {
                return Ok(Event::Nothing);
            }
        }
    }
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

/// Leaves the terminal as it was. The terminal may be gone: then there is nothing to leave.
fn give_back() {
    if TAKEN.swap(false, SeqCst) {
        let _ = execute!(io::stdout(), cursor::Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
        let _ = io::stdout().flush();
    }
}

fn meaning(event: &event::Event) -> Event {
    let event::Event::Key(key) = event else { return Event::Redraw };
    if key.kind == KeyEventKind::Release {
        return Event::Nothing;
    }
    let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Event::Key(match key.code {
        KeyCode::Char('c') if with_control => Key::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::Home | KeyCode::Char('g') => Key::First,
        KeyCode::End | KeyCode::Char('G') => Key::Last,
        KeyCode::Tab | KeyCode::BackTab => Key::OtherPanel,
        KeyCode::Char('s') => Key::Sort,
        KeyCode::Char('r') => Key::Turn,
        KeyCode::Char(' ') => Key::StandStill,
        KeyCode::Char('+' | '=') => Key::Faster,
        KeyCode::Char('-') => Key::Slower,
        _ => return Event::Redraw,
    })
}
