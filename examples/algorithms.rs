//! What each algorithm admits over time, as pictures: writes `docs/pictures/ADMISSIONS-*.svg`.
//!
//! A greedy client asks a real set for one unit whenever it may, by a clock that stands still in between. Run with
//! `cargo run --example algorithms`; in another folder with `cargo run --example algorithms FOLDER`.

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
