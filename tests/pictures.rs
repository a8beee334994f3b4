//! The pictures in `docs/pictures` are what the algorithms do. `LIMITSET_BLESS=1 cargo test --test pictures` writes
//! them anew.

#![allow(clippy::unwrap_used, reason = "helpers of tests stop at the first surprise, like the tests")]

use std::fs;
use std::path::PathBuf;

use limitset::Algorithm;

#[path = "../examples/pictures/mod.rs"]
mod pictures;

use pictures::{ASKS, CAPACITY, PAUSE, Scene, WINDOW, most_in_a_window};

fn path_of(scene: &Scene) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/pictures").join(scene.file_name())
}

#[test]
fn every_picture_is_what_the_algorithm_does() {
    for scene in Scene::all() {
        let (path, drawn) = (path_of(&scene), scene.picture().unwrap());
        if std::env::var_os("LIMITSET_BLESS").is_some() {
            fs::write(&path, &drawn).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == drawn, "{} is stale: look at it after LIMITSET_BLESS=1", path.display());
    }
}

#[test]
fn every_picture_is_small_and_on_the_page() {
    let page = include_str!("../docs/algorithms.md");
    for scene in Scene::all() {
        assert!(scene.picture().unwrap().len() < 40_000, "{}", scene.algorithm);
        assert!(page.contains(&format!("(pictures/{})", scene.file_name())), "{}", scene.algorithm);
    }
}

#[test]
fn what_the_page_says_of_the_pictures_is_so() {
    for scene in Scene::all() {
        let admissions = scene.admissions().unwrap();
        let at = |from: f64| admissions.iter().filter(|at| at.as_secs_f64() == from).count();
        let most = most_in_a_window(&admissions);
        match scene.algorithm {
            Algorithm::TokenBucket => assert_eq!((at(0.25), at(2.8), most), (10, 10, 19)),
            Algorithm::LeakyBucket => {
                let space = WINDOW / u32::try_from(CAPACITY).unwrap();
                assert!(admissions.windows(2).all(|pair| pair[1] - pair[0] >= space), "{admissions:?}");
                assert_eq!((at(0.25), at(2.8), most), (1, 1, 10));
            }
            Algorithm::SlidingWindow => {
                assert_eq!((at(0.25), at(1.25), at(2.8), at(3.8)), (10, 10, 10, 10));
                assert_eq!(most, 10);
            }
            Algorithm::FixedWindow => {
                assert_eq!((at(0.25), at(1.0), at(2.8), at(3.0)), (10, 10, 10, 10));
                assert_eq!(most, 20);
            }
            Algorithm::Gcra => assert_eq!((at(0.25), at(2.8), most), (5, 5, 14)),
            other => panic!("nothing is said of {other}"),
        }
        assert!(admissions.iter().all(|at| ASKS.contains(at) && !PAUSE.contains(at)));
    }
}
