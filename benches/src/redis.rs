//! Redis over a Unix socket: one script with token buckets, all or none. It is the usual alternative to
//! limitset, and the only rival that shares rates between processes.
//!
//! The server is started here, without a TCP port, in its own folder, and ended with the bench. The client
//! sends bytes that were prepared beforehand and reads the answer: less work than in any client library.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::sys::{self, TempFolder};

const SCRIPT: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local left = {}
for i = 1, #KEYS do
  local rate, most, want = tonumber(ARGV[3 * i - 2]), tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i])
  local had = redis.call('HMGET', KEYS[i], 'left', 'at')
  local n = math.min(most, (tonumber(had[1]) or most) + (now - (tonumber(had[2]) or now)) * rate / 1000000)
  if n < want then return 0 end
  left[i] = n - want
end
for i = 1, #KEYS do redis.call('HSET', KEYS[i], 'left', left[i], 'at', now) end
return 1";

pub struct Server {
    child: Child,
    folder: TempFolder,
    script: String,
    pub version: String,
}

impl Server {
    /// Starts a server. The error is the reason of a failure.
    pub fn start() -> Result<Server, String> {
        let version = Command::new("redis-server").arg("--version").output();
        let version = version.map_err(|_| "`redis-server` is not installed".to_owned())?.stdout;
        let version = String::from_utf8_lossy(&version).into_owned();
        let version = version.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or("?");
        let folder = TempFolder::new("redis").map_err(|error| error.to_string())?;
        let socket = folder.0.join("socket");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no"]);
        command.arg("--unixsocket").arg(&socket).arg("--dir").arg(&folder.0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // The server ends with the bench, however that ends.
        // SAFETY: the call is allowed between fork and exec.
        unsafe { command.pre_exec(|| Ok(_ = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))) };
        let child = command.spawn().map_err(|error| format!("cannot start redis-server: {error}"))?;
        let mut server = Server { child, folder, script: String::new(), version: version.to_owned() };
        let start = Instant::now();
        let mut stream = loop {
            match server.connect() {
                Ok(stream) => break stream,
                Err(error) if start.elapsed() > Duration::from_secs(10) => {
                    return Err(format!("redis-server does not answer: {error}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let answer =
            ask(&mut stream, &command_of(&["SCRIPT", "LOAD", SCRIPT])).map_err(|it| it.to_string())?;
        let lines = String::from_utf8_lossy(&answer).into_owned();
        server.script = lines.lines().nth(1).unwrap_or_default().to_owned();
        if server.script.len() == 40 {
            Ok(server)
        } else {
            Err(format!("unexpected answer of redis-server: {lines}"))
        }
    }

    fn connect(&self) -> std::io::Result<UnixStream> {
        let stream = UnixStream::connect(self.folder.0.join("socket"))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(stream)
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Returns a connection that requests one of each of this many buckets, which are never empty.
    pub fn client(&self, buckets: usize) -> Client {
        self.client_of(buckets, "1000000000000", "1000000000000")
    }

    /// Returns a connection whose requests are always denied.
    pub fn refused_client(&self, buckets: usize) -> Client {
        self.client_of(buckets, "0", "0.5")
    }

    fn client_of(&self, buckets: usize, rate: &str, most: &str) -> Client {
        let keys: Vec<String> = (0..buckets).map(|index| format!("bucket:{most}:{index}")).collect();
        let count = buckets.to_string();
        let mut words = vec!["EVALSHA", &self.script, &count];
        words.extend(keys.iter().map(String::as_str));
        (0..buckets).for_each(|_| words.extend([rate, most, "1"]));
        Client { stream: self.connect().expect("a connection to redis-server"), request: command_of(&words) }
    }

    /// Pins the server to one processor, or unpins it.
    pub fn pin(&self, cpu: Option<usize>, free: &libc::cpu_set_t) {
        sys::set_affinity(self.pid(), &cpu.map_or(*free, sys::only));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server has nothing to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Client {
    stream: UnixStream,
    request: Vec<u8>,
}

impl Client {
    fn answer(&mut self) -> Vec<u8> {
        ask(&mut self.stream, &self.request).expect("an answer of redis-server")
    }

    pub fn granted(&mut self) {
        assert_eq!(self.answer(), b":1\r\n", "Redis refused");
    }

    pub fn denied(&mut self) {
        assert_eq!(self.answer(), b":0\r\n", "Redis granted");
    }
}

/// Sends a command, and reads an answer that fits into one packet.
fn ask(stream: &mut UnixStream, request: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(request)?;
    let mut answer = [0; 512];
    let length = stream.read(&mut answer)?;
    Ok(answer[..length].to_vec())
}

/// Encodes a command in the protocol of Redis.
fn command_of(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    bytes.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_says_how_long_its_words_are() {
        assert_eq!(command_of(&["GET", "ab"]), b"*2\r\n$3\r\nGET\r\n$2\r\nab\r\n");
    }

    #[test]
    fn the_script_grants_and_refuses() {
        match Server::start() {
            Ok(server) => {
                server.client(3).granted();
                server.client(1).granted();
                server.refused_client(3).denied();
            }
            Err(why) => println!("SKIPPED the_script_grants_and_refuses: {why}"),
        }
    }
}
