//! A batch against a provider that allows less than it promises: eight forked workers send 500 prompts to an
//! HTTP server that answers 429. Each 429 pauses all workers once; nothing is lost. The server is part of
//! this program. It all ends by itself after some twenty seconds.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, IsTerminal, PipeWriter, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use limitset::{
    CallLimit, Cooldown, ExitReason, LimitSet, Prefork, QueueError, QueueOptions, RateLimit, ResourceLimit,
    Restart, Supervisor, Worker,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const PROMPTS: u64 = 500;
const WORKERS: u32 = 8;
/// The limits on the provider's web page: requests and tokens per minute.
const PROMISED: [u64; 2] = [4_000, 400_000];
/// The provider's real limits: requests and tokens per minute.
const GIVEN: [u32; 2] = [2_400, 240_000];
const MINUTE: Duration = Duration::from_secs(60);
/// The time that the provider takes for a prompt.
const LATENCY: Duration = Duration::from_millis(30);
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Outcome<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let (mut log, told) = std::io::pipe()?;
    let mut provider =
        Prefork::new(1).restart(Restart::Never).start(move |it| provide(it, &listener, &told))?;

    let [requests, tokens] = PROMISED;
    let limits = LimitSet::builder()
        .limit(CallLimit::per_minute(requests).burst(50))
        .limit(RateLimit::per_minute("tokens", tokens).burst(10_000))
        .limit(ResourceLimit::new("connections", WORKERS.into()))
        .cooldown(Cooldown::default().first(Duration::from_millis(250)).slow_start(
            8,
            Duration::from_millis(100),
            Duration::from_millis(25),
        ))
        // Fewer places than prompts: the producer waits for the workers.
        .queue(QueueOptions::new(100, 64))
        .open_anonymous()?;
    let shared = limits.clone();
    let mut workers = Prefork::new(WORKERS as usize)
        .restart(Restart::OnFailure)
        .start(move |it| work(it, &shared, address))?;

    let started = Instant::now();
    let answers = feed(&limits, &mut workers)?;
    let elapsed = started.elapsed();

    while !workers.is_over() {
        workers.step()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    provider.stop();
    while !provider.is_over() {
        provider.step()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(provider); // also drops the last writer to the pipe
    let mut said = String::new();
    log.read_to_string(&mut said)?;
    sum_up(&limits, &answers, elapsed, &said)
}

/// Pushes prompts and collects answers in one thread, whichever is possible, until all answers have arrived.
fn feed<W, T>(limits: &LimitSet, workers: &mut Supervisor<W>) -> Outcome<BTreeMap<u64, String>>
where
    W: Fn(&Worker) -> T,
    T: limitset::WorkerOutcome,
{
    let queue = limits.queue()?;
    let mut answers = BTreeMap::new();
    let mut pushed = 0;
    while (answers.len() as u64) < PROMPTS {
        while pushed < PROMPTS {
            match queue.try_push(pushed, format!("prompt {pushed}").as_bytes()) {
                Err(QueueError::Full { .. }) => break,
                done => done?,
            }
            pushed += 1;
            if pushed == PROMPTS {
                queue.close()?; // workers end when all is finished
            }
        }
        match queue.collect_timeout(Duration::from_millis(50)) {
            Ok(Some(mut answer)) => {
                answers.insert(answer.id(), String::from_utf8_lossy(answer.result()).into_owned());
                answer.forget()?;
                draw(limits, answers.len() as u64)?;
            }
            Ok(None) => {
                return Err(format!("only {} of {PROMPTS} prompts have an answer", answers.len()).into());
            }
            Err(QueueError::TimedOut) if std::io::stdout().is_terminal() => {
                draw(limits, answers.len() as u64)?
            }
            Err(QueueError::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
        for exit in workers.step()?.0 {
            if exit.reason != ExitReason::Finished {
                println!("{exit}");
            }
        }
    }
    println!();
    Ok(answers)
}

/// Draws the progress bar; prints a line now and then if stdout is not a terminal.
fn draw(limits: &LimitSet, done: u64) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    let bar: String = (0..40).map(|place| if place * PROMPTS < done * 40 { '#' } else { '.' }).collect();
    if out.is_terminal() {
        let cooldown = limits.stats()?.cooldown;
        let pause = cooldown.remaining.map_or_else(String::new, |left| format!("paused, {left:.1?} left"));
        write!(out, "\r[{bar}] {done:3}/{PROMPTS}  {} pauses  {pause:24}", cooldown.generation)?;
    } else if done.is_multiple_of(PROMPTS / 5) {
        writeln!(out, "[{bar}] {done}/{PROMPTS}")?;
    }
    Ok(out.flush()?)
}

/// The work of a worker: takes prompts until there are none, and asks the provider as far as the limits
/// allow.
fn work(worker: &Worker, limits: &LimitSet, provider: SocketAddr) -> Outcome<()> {
    let queue = limits.queue()?;
    while !worker.stopping() {
        let mut prompt = match queue.take_timeout(Duration::from_millis(200)) {
            Ok(Some(prompt)) => prompt,
            Ok(None) => break,
            Err(QueueError::TimedOut) => continue,
            Err(error) => return Err(error.into()),
        };
        // An estimate; the real use is known afterwards.
        let mut held = limits.acquire([("tokens", 150)])?;
        match ask(provider, prompt.payload())? {
            Answer::Text { tokens, text } => {
                held.settle("tokens", tokens)?;
                held.release()?;
                prompt.done_with(text.as_bytes())?;
            }
            // Pauses all workers, once, and parks the prompt until then.
            Answer::TooMany { retry_after } => {
                prompt.rate_limited(held, retry_after)?;
            }
            Answer::Trouble { status } => {
                held.cancel()?;
                eprintln!("{status} for prompt {}, attempt {}", prompt.id(), prompt.attempts());
                prompt.retry(Duration::from_millis(100))?;
            }
        }
    }
    Ok(())
}

enum Answer {
    Text { tokens: u64, text: String },
    TooMany { retry_after: Option<Duration> },
    Trouble { status: u16 },
}

/// Sends one request over HTTP.
fn ask(provider: SocketAddr, prompt: &[u8]) -> Outcome<Answer> {
    let mut connection = TcpStream::connect(provider)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    let length = prompt.len();
    write!(connection, "POST /chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n")?;
    connection.write_all(prompt)?;
    let mut text = String::new();
    connection.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("an answer without an end")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
    let header = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines
            .into_iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .and_then(|(_, value)| value.parse().ok())
    };
    Ok(match status {
        200 => Answer::Text { tokens: header("X-Tokens").unwrap_or(0), text: body.to_owned() },
        429 => Answer::TooMany { retry_after: header("Retry-After").map(Duration::from_secs) },
        status => Answer::Trouble { status },
    })
}

// ---- the provider: knows nothing of the limits above ----

/// The times until which the requests and the tokens are used up. A second's worth may be used in advance.
struct Budget {
    used_until: [Instant; 2],
    served: u64,
    rejected: u64,
}

impl Budget {
    fn new() -> Self {
        Self { used_until: [Instant::now(); 2], served: 0, rejected: 0 }
    }

    /// Pays for a request, or returns the number of seconds until it could be paid for.
    fn pay(&mut self, tokens: u32) -> Result<(), u64> {
        let now = Instant::now();
        let mut costs = [1, tokens].into_iter().zip(GIVEN).map(|(cost, given)| cost * MINUTE / given);
        let used_until = self.used_until.map(|until| until.max(now) + costs.next().unwrap_or_default());
        let too_early = used_until.map(|until| until.saturating_duration_since(now + Duration::from_secs(1)));
        let wait = too_early.into_iter().max().unwrap_or_default();
        if wait > Duration::ZERO {
            self.rejected += 1;
            return Err(wait.as_secs() + 1);
        }
        self.used_until = used_until;
        self.served += 1;
        Ok(())
    }
}

/// Answers requests until the worker has to stop, then writes the counts to the log.
fn provide(worker: &Worker, listener: &TcpListener, mut log: &PipeWriter) -> std::io::Result<()> {
    let budget = Arc::new(Mutex::new(Budget::new()));
    while !worker.stopping() {
        match listener.accept() {
            Ok((connection, _)) => {
                let budget = Arc::clone(&budget);
                // An error of one client does not matter to the provider.
                std::thread::spawn(move || drop(answer(connection, &budget)));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                worker.wait_for_stop(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
    let budget = budget.lock().unwrap_or_else(PoisonError::into_inner);
    writeln!(log, "{} {}", budget.served, budget.rejected)
}

fn answer(connection: TcpStream, budget: &Mutex<Budget>) -> std::io::Result<()> {
    connection.set_nonblocking(false)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    let mut connection = BufReader::new(connection);
    let (mut line, mut length) = (String::new(), 0);
    while connection.read_line(&mut line)? > 2 {
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    let mut prompt = vec![0; length.min(4_096)];
    connection.read_exact(&mut prompt)?;
    let tokens = 60 + prompt.iter().map(|byte| u32::from(*byte)).sum::<u32>() % 60;
    let paid = budget.lock().unwrap_or_else(PoisonError::into_inner).pay(tokens);
    let answer = match paid {
        Ok(()) => {
            std::thread::sleep(LATENCY);
            let body = format!("answer to {}", String::from_utf8_lossy(&prompt));
            format!("HTTP/1.1 200 OK\r\nX-Tokens: {tokens}\r\nConnection: close\r\n\r\n{body}")
        }
        Err(seconds) => {
            format!("HTTP/1.1 429 Too Many Requests\r\nRetry-After: {seconds}\r\nConnection: close\r\n\r\n")
        }
    };
    connection.get_mut().write_all(answer.as_bytes())
}

/// Prints the results, and checks them against the provider's counts.
fn sum_up(limits: &LimitSet, answers: &BTreeMap<u64, String>, elapsed: Duration, said: &str) -> Outcome<()> {
    let counts: Vec<u64> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [served, rejected] = counts[..] else { return Err("the provider wrote no counts".into()) };
    let stats = limits.stats()?;
    let queue = stats.queue.ok_or("there is a queue")?;
    let tokens = stats.limit("tokens").map_or(0, |limit| limit.consumed);
    let pauses = stats.cooldown.generation;
    println!("{} answers in {elapsed:.1?} by {WORKERS} workers, {tokens} tokens", answers.len());
    println!("{served} requests served, {rejected} rejected, {pauses} pauses of all workers");
    println!(
        "{} prompts parked, {} handed out again, {} given up",
        queue.rate_limited, queue.redistributed, queue.dead_lettered
    );

    let expected = (0..PROMPTS).map(|id| (id, format!("answer to prompt {id}")));
    assert!(answers.iter().map(|(id, text)| (*id, text.clone())).eq(expected), "every prompt has its answer");
    assert_eq!(queue.done, PROMPTS, "each is done once");
    // A worker that is killed may have sent a prompt without receiving the answer.
    let lost = queue.returned;
    assert!((PROMPTS..=PROMPTS + lost).contains(&served), "each was served once");
    assert_eq!(
        queue.rate_limited, queue.redistributed,
        "each prompt that was parked was handed out again, once"
    );
    assert!((rejected..=rejected + lost).contains(&(queue.rate_limited + lost)), "each 429 parked a prompt");
    assert!(pauses > 0, "the provider never answered 429");
    // Requests that were under way when the pause began may be rejected too, but no others.
    assert!(rejected <= pauses * u64::from(WORKERS) + lost, "more 429s than the pauses account for");
    Ok(())
}
