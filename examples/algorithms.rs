//! Draws the admissions of each algorithm over time: writes `docs/pictures/ADMISSIONS-*.svg`.
//!
//! A greedy client requests one unit from a real set as soon as it may. The manual clock stands still in
//! between. Run with `cargo run --example algorithms`; to write to another folder, `cargo run --example
//! algorithms FOLDER`.

mod pictures;

use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let usual = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pictures");
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or(usual.into()));
    fs::create_dir_all(&folder)?;
    for scene in pictures::Scene::all() {
        let path = folder.join(scene.file_name());
        fs::write(&path, scene.picture()?)?;
        let admissions = scene.admissions()?;
        let most = pictures::most_in_a_window(&admissions);
        println!(
            "{:<15} {} admissions, {most} within a second: {}",
            scene.algorithm.name(),
            admissions.len(),
            path.display()
        );
    }
    Ok(())
}
