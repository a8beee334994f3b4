//! An HTTP server on loopback: four forked workers share one limit, which holds while one of them is killed
//! every second. The client is part of this program. It all ends by itself after some five seconds.

use std::io::{BufRead, BufReader, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use limitset::{Algorithm, CallLimit, LimitSet, Prefork, ResourceLimit, Restart, Worker};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const WORKERS: usize = 4;
/// Requests that may be answered per window, by all workers together.
const BUDGET: u64 = 20;
const WINDOW: Duration = Duration::from_millis(500);
const RUN: Duration = Duration::from_secs(5);
/// Longer than any answer takes: a killed worker does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

fn main() -> Outcome<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let limits = LimitSet::builder()
        // With this algorithm, no interval as long as the window has more than the budget.
        .limit(CallLimit::new(BUDGET, WINDOW).algorithm(Algorithm::SlidingWindow))
        // A permit is held while a request is answered. The permits of a killed worker return.
        .limit(ResourceLimit::new("in_flight", WORKERS as u64))
        .open_anonymous()?;

    let mut server = Prefork::new(WORKERS)
        .limits(&limits)
        .backoff_times(Duration::from_millis(10), Duration::from_millis(10))
        .start(|worker| serve(worker, &listener))?;
    // A separate process, not a thread: a process with threads should not fork, and workers are replaced by
    // forking.
    let (output, input) = std::io::pipe()?;
    let mut client = Prefork::new(1).restart(Restart::Never).start(move |_| drive(address, &input))?;

    let started = Instant::now();
    let mut killed = 0;
    while !client.is_over() {
        for exit in server.step()?.0 {
            println!("{exit}");
        }
        // Kill another worker every second.
        if started.elapsed().as_secs() > killed {
            let running = server.running();
            let victim = usize::try_from(killed)? % running.len().max(1);
            if let Some((_, pid)) = running.get(victim) {
                kill(Pid::from_raw(*pid), Signal::SIGKILL)?;
            }
            killed += 1;
        }
        std::thread::sleep(Duration::from_millis(10));
        client.step()?;
    }

    // Let the workers finish, and wait for them.
    server.stop();
    while !server.is_over() {
        server.step()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(client); // also drops the last writer to the pipe
    let restarts = server.restarts();
    println!("{killed} workers killed, {restarts} restarted");
    check(&limits, output)
}

/// The work of a worker: answers clients as far as the limits allow.
fn serve(worker: &Worker, listener: &TcpListener) {
    while !worker.stopping() {
        match listener.accept() {
            Ok((connection, _)) => {
                // An error of one client does not matter to the server.
                let _ = answer(worker, connection);
            }
            // No client is waiting: sleep a little, or until it is time to stop.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                worker.wait_for_stop(Duration::from_millis(2));
            }
            Err(error) => return eprintln!("worker {}: {error}", worker.index()),
        }
    }
}

fn answer(worker: &Worker, connection: TcpStream) -> std::io::Result<()> {
    connection.set_nonblocking(false)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    let mut connection = BufReader::new(connection);
    let mut line = String::new();
    while connection.read_line(&mut line)? > 2 {
        line.clear();
    }
    // Held until the answer has been sent.
    let held = worker.limits().try_acquire(());
    let (status, body) = match &held {
        Ok(held) => ("200 OK", format!("worker {}, call {}\n", worker.index(), held.ticket())),
        Err(refusal) => ("429 Too Many Requests", format!("{refusal}\n")),
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    connection.get_mut().write_all((head + &body).as_bytes())
}

/// The client: sends requests without a pause until the time is over, and reports the answers.
fn drive(address: SocketAddr, mut output: &PipeWriter) -> std::io::Result<()> {
    let started = Instant::now();
    let (mut answered, mut refused, mut lost) = (0, 0, 0);
    while started.elapsed() < RUN {
        match ask(address) {
            Ok(200) => answered += 1,
            Ok(_) => refused += 1,
            // The worker was killed before it answered.
            Err(_) => lost += 1,
        }
    }
    writeln!(output, "{answered} {refused} {lost} {}", started.elapsed().as_nanos())
}

fn ask(address: SocketAddr) -> std::io::Result<u16> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    connection.read_to_string(&mut text)?;
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| std::io::Error::other("no answer"))
}

/// Compares the client's counts with the charges, and the charges with the budget.
fn check(limits: &LimitSet, mut output: PipeReader) -> Outcome<()> {
    let mut seen = String::new();
    output.read_to_string(&mut seen)?;
    let seen: Vec<u64> = seen.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [answered, refused, lost, nanos] = seen[..] else { return Err("the client wrote no counts".into()) };
    limits.reap()?;
    let stats = limits.stats()?;
    let charged = stats.limit("call_count").map_or(0, |limit| limit.consumed);
    let in_flight = stats.limit("in_flight").map_or(0, |limit| limit.in_use);
    let windows = u128::from(nanos).div_ceil(WINDOW.as_nanos());
    let most = BUDGET * u64::try_from(windows)?;
    println!("{answered} answered, {refused} refused, {lost} lost with their worker");
    println!("{charged} charged in {windows} windows, at most {most} allowed; {in_flight} in flight");

    assert!(charged <= most, "the budget did not hold");
    assert!(answered > BUDGET && refused > 0, "too few requests to test the budget");
    assert!(
        (answered..=answered + lost).contains(&charged),
        "an answer without a charge, or a charge without one"
    );
    assert_eq!(in_flight, 0, "the permits of killed workers were returned");
    println!("the budget held");
    Ok(())
}
