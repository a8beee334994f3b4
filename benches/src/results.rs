//! What a bench found: groups of rows, measured together, so that any two of its rows can be compared.

use crate::batches::{self, Distance, Figures, Measured, Plan, Probe, Row};

/// Rows that do the same work, and the row that they are compared with.
pub struct Group<R> {
    pub title: String,
    pub reference: String,
    pub rows: Vec<R>,
}

impl Group<Row> {
    pub fn new(title: impl Into<String>, reference: impl Into<String>, rows: Vec<Row>) -> Group<Row> {
        Group { title: title.into(), reference: reference.into(), rows }
    }
}

/// A bench, measured.
pub struct Bench {
    pub name: &'static str,
    pub question: &'static str,
    pub groups: Vec<Group<Measured>>,
    /// Several processes on shared memory: near and far apart, and ratios below 2 are no result.
    pub contended: bool,
    /// Further paragraphs and tables, as markdown.
    pub remarks: Vec<String>,
    /// How often something was as it should be.
    pub shares: Vec<Share>,
}

/// So many of so many.
pub struct Share {
    pub key: &'static str,
    pub met: usize,
    pub of: usize,
}

impl Bench {
    /// Measures the rows of all groups together, in interleaved rounds.
    pub fn measure(
        name: &'static str,
        question: &'static str,
        groups: Vec<Group<Row>>,
        plan: Plan,
        probe: Option<Probe<'_>>,
    ) -> Bench {
        let contended = probe.is_some();
        let (mut shapes, mut rows) = (Vec::new(), Vec::new());
        for group in groups {
            shapes.push((group.title, group.reference, group.rows.len()));
            rows.extend(group.rows);
        }
        let mut measured = batches::run(rows, plan, probe).into_iter();
        let groups = shapes.into_iter().map(|(title, reference, count)| {
            let rows = measured.by_ref().take(count).collect();
            Group { title, reference, rows }
        });
        Bench { name, question, groups: groups.collect(), contended, remarks: Vec::new(), shares: Vec::new() }
    }

    pub fn row(&self, key: &str) -> Option<&Measured> {
        self.groups.iter().flat_map(|group| &group.rows).find(|row| row.key == key)
    }

    /// The distances that the batches of this bench can have.
    pub fn distances(&self) -> &'static [Distance] {
        if self.contended { &[Distance::Near, Distance::Far] } else { &[Distance::NoMatter] }
    }
}

/// Everything that was measured.
#[derive(Default)]
pub struct Results {
    pub benches: Vec<Bench>,
}

impl Results {
    pub fn bench(&self, name: &str) -> Option<&Bench> {
        self.benches.iter().find(|bench| bench.name == name)
    }

    /// How many times as long `key` takes as `other`, within the rounds of a bench.
    pub fn ratio(&self, bench: &str, key: &str, other: &str, distance: Distance) -> Option<Figures> {
        let bench = self.bench(bench)?;
        bench.row(key)?.ratio(bench.row(other)?, distance)
    }
}
