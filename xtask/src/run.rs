//! Runs a command and passes its output on as it arrives.

use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// The interval at which a silent command is polled for its end.
const POLL: Duration = Duration::from_millis(100);

/// How long the output may stay open and silent after the command has ended.
const GRACE: Duration = Duration::from_secs(5);

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) status: ExitStatus,
    /// A process that the command started outlives it and still holds the output open.
    pub(crate) survivor: bool,
}

/// Runs `command` without input. `take` gets stdout and stderr in the order in which they were written.
pub(crate) fn stream(command: Command, take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<Ending> {
    stream_with_grace(command, take, GRACE)
}

fn stream_with_grace(
    mut command: Command,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
    grace: Duration,
) -> io::Result<Ending> {
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // The command owns copies of the pipe's writing end: with them open, the reader would never see the end.
    drop(command);

    let (sender, chunks) = mpsc::channel();
    thread::spawn(move || pump(reader, &sender));

    let mut ended = None;
    let mut quiet_since = Instant::now();
    loop {
        match chunks.recv_timeout(POLL) {
            Ok(chunk) => {
                take(&chunk)?;
                quiet_since = Instant::now();
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Ok(Ending { status: child.wait()?, survivor: false });
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if ended.is_none() {
            ended = child.try_wait()?;
            quiet_since = Instant::now();
        }
        if let Some(status) = ended
            && quiet_since.elapsed() > grace
        {
            return Ok(Ending { status, survivor: true });
        }
    }
}

fn pump(mut reader: io::PipeReader, chunks: &Sender<Vec<u8>>) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                let chunk = buffer.iter().take(length).copied().collect();
                if chunks.send(chunk).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, grace: Duration) -> (Ending, String) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut output = Vec::new();
        let keep = |chunk: &[u8]| {
            output.extend_from_slice(chunk);
            Ok(())
        };
        let ending = stream_with_grace(command, keep, grace).unwrap();
        (ending, String::from_utf8(output).unwrap())
    }

    #[test]
    fn both_streams_arrive_in_order_and_the_status_is_kept() {
        let (ending, output) = shell("echo one; echo two >&2; echo three; exit 3", GRACE);
        assert_eq!(output, "one\ntwo\nthree\n");
        assert_eq!(ending.status.code(), Some(3));
        assert!(!ending.survivor);
    }

    #[test]
    fn the_command_has_no_input() {
        let (ending, output) = shell("cat; echo end", GRACE);
        assert_eq!(output, "end\n");
        assert!(ending.status.success());
    }

    #[test]
    fn a_process_left_behind_is_reported_and_not_waited_for() {
        let (ending, output) = shell("sleep 20 & echo $!", Duration::from_millis(50));
        assert!(ending.survivor);
        let killed = Command::new("kill").arg(output.trim()).status().unwrap();
        assert!(killed.success(), "the background process had ended: the run waited for it");
    }
}
