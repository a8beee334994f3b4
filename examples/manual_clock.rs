//! Tests code that uses limits: with a manual clock, a test decides when time passes, and a day takes no
//! time.
//!
//! Run with `cargo run --example manual_clock`.

use std::time::Duration;

use limitset::{AcquireError, CallLimit, Clock, LimitSet};

/// The code under test. It gets its limits from the caller, so that a test can pass others.
struct Mailer {
    limits: LimitSet,
    later: Vec<String>,
}

impl Mailer {
    /// Sends the mail, or keeps it for later and returns the time until it can be sent.
    fn send(&mut self, mail: &str) -> Result<Option<Duration>, AcquireError> {
        match self.limits.try_acquire(()) {
            Ok(_held) => Ok(None), // the mail would be sent here
            Err(AcquireError::Denied(denial)) => {
                self.later.push(mail.to_owned());
                Ok(denial.retry_after())
            }
            Err(other) => Err(other),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // In private memory, tests do not affect each other. A named set works as well, across processes.
    let limits =
        LimitSet::builder().limit(CallLimit::per_day(2).burst(1)).clock(Clock::Manual).in_memory()?;
    let mut mailer = Mailer { limits: limits.clone(), later: Vec::new() };

    assert_eq!(mailer.send("first")?, None);
    let wait = mailer.send("second")?.ok_or("two mails at once")?;
    assert_eq!(wait, Duration::from_secs(12 * 3_600), "two a day are half a day apart");
    assert_eq!(mailer.later, ["second"]);

    // Denials are exact: one nanosecond too early is too early.
    limits.advance(wait - Duration::from_nanos(1))?;
    assert_eq!(mailer.send("third")?, Some(Duration::from_nanos(1)));
    limits.advance(Duration::from_nanos(1))?;
    assert_eq!(mailer.send("fourth")?, None);
    println!("half a day passed in no time; kept for later: {:?}", mailer.later);
    Ok(())
}
