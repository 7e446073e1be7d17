"""Loading and unloading models while the server runs."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from running import RunningServer, ask, run_server

from cenote import opening
from cenote.config import EngineOptions, ServerOptions
from cenote.engine import AsyncEngine
from cenote.errors import OptionError
from cenote.runtime.loop import Loop
from cenote.server.app import create_app
from cenote.server.opening import Opener
from tolerances import assert_close
from waiting import until

KEY = {"authorization": "Bearer a-key-0123456789"}
OPTIONS = ServerOptions(port=0, shutdown_timeout=5, admin=True, api_key=("a-key-0123456789",), metrics_without_key=True)
PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Scene:
    """A server with `tiny`, to which `fixed` may be added."""

    server: RunningServer
    folders: dict[str, Path]
    engine: AsyncEngine

    def load(self, name: str = "other", **body: Any) -> httpx.Response:
        body = {"model": str(self.folders["fixed"]), "name": name} | body
        return self.server.http.post("/admin/models", json=body, headers=KEY)

    def unload(self, name: str = "other") -> httpx.Response:
        return self.server.http.delete(f"/admin/models/{name}", headers=KEY)

    def embed(self, model: str, text: str = "the cat") -> httpx.Response:
        return self.server.http.post("/v1/embeddings", json={"model": model, "input": text}, headers=KEY)

    def names(self) -> list[str]:
        return [each["id"] for each in self.server.http.get("/v1/models", headers=KEY).json()["data"]]


@pytest.fixture
def scene(folders: dict[str, Path]) -> Iterator[Scene]:
    loop = Loop()
    opener = Opener(loop=loop, options=EngineOptions(threads=1, verify=False))
    engine = opener.open("tiny", str(folders["tiny"]), opener.options)
    with run_server({"tiny": engine}, OPTIONS, opener=opener) as server:
        yield Scene(server, folders, engine)
    loop.close()


def vector(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return np.asarray(answer.json()["data"][0]["embedding"])


class TestAccess:
    def test_is_off_by_default(self, server: RunningServer) -> None:
        assert server.http.post("/admin/models", json={"model": "a", "name": "b"}).status_code == 404
        assert server.http.delete("/admin/models/tiny").status_code == 404

    def test_is_never_on_without_keys(self, server: RunningServer) -> None:
        with pytest.raises(OptionError, match="admin needs a key"):
            create_app(server.engines, ServerOptions(admin=True))

    def test_asks_for_a_key(self, scene: Scene) -> None:
        assert scene.server.http.post("/admin/models", json={"model": "a", "name": "b"}).status_code == 401
        assert scene.server.http.delete("/admin/models/tiny").status_code == 401
        assert scene.names() == ["tiny"]

    def test_is_described_where_it_is_on(self, scene: Scene, server: RunningServer) -> None:
        described = scene.server.http.get("/openapi.json", headers=KEY).json()["paths"]
        assert set(described["/admin/models"]) == {"post"}
        assert set(described["/admin/models/{name}"]) == {"delete"}
        assert not [path for path in server.http.get("/openapi.json").json()["paths"] if "admin" in path]


def test_a_loaded_model_answers_as_on_its_own(scene: Scene) -> None:
    loaded = scene.load()
    assert loaded.status_code == 200, loaded.text
    assert loaded.json()["id"] == "other"
    assert loaded.json()["dimensions"] == 64
    assert scene.names() == ["tiny", "other"]
    alone = AsyncEngine(scene.folders["fixed"], threads=1)
    assert_close(vector(scene.embed("other")), ask(alone.embed("the cat"))[0])
    alone.close()
    assert_close(vector(scene.embed("tiny")), ask(scene.engine.embed("the cat"))[0])
    assert scene.server.metric("cenote_steps_total", model="other") == 1


def test_its_own_options_are_used(scene: Scene) -> None:
    assert scene.load(options={"max_length": 8, "any_dimensions": True}).json()["max_model_len"] == 8
    body = {"model": "other", "input": "the cat", "dimensions": 7}
    assert len(vector(scene.server.http.post("/v1/embeddings", json=body, headers=KEY))) == 7


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"model": "/no/such/folder"}, "/no/such/folder"),
        ({"name": "tiny"}, "already"),
        ({"name": "a b"}, "name"),
        ({"options": {"dtype": "float99"}}, "float99"),
        ({"options": {"made_up": 1}}, "made_up"),
        ({"options": {"threads": 1}}, "threads"),
        ({"options": {"max_length": "8"}}, "max_length"),
        ({"made_up": 1}, "made_up"),
        ({"model": None}, "model"),
    ],
)
def test_what_cannot_be_loaded_is_said(scene: Scene, body: dict[str, Any], word: str) -> None:
    answer = scene.load(**body)
    assert answer.status_code == 400, answer.text
    assert word in answer.json()["error"]["message"]
    assert scene.names() == ["tiny"]
    assert scene.embed("tiny").status_code == 200


def test_others_are_served_while_a_model_loads(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    load_model, has_begun, may_load = opening.load_model, threading.Event(), threading.Event()

    def slow(*args: Any, **keywords: Any) -> Any:
        has_begun.set()
        assert may_load.wait(PATIENCE_SECONDS)
        return load_model(*args, **keywords)

    monkeypatch.setattr(opening, "load_model", slow)
    with ThreadPoolExecutor(1) as threads:
        loading = threads.submit(scene.load)
        assert has_begun.wait(PATIENCE_SECONDS)
        assert scene.embed("tiny").status_code == 200
        assert scene.server.http.get("/health").status_code == 200
        assert scene.embed("other").status_code == 404
        assert "already" in scene.load().text
        may_load.set()
        assert loading.result().status_code == 200
    assert scene.embed("other").status_code == 200


def test_a_client_that_leaves_does_not_stop_the_loading(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    load_model, has_begun, may_load = opening.load_model, threading.Event(), threading.Event()

    def slow(*args: Any, **keywords: Any) -> Any:
        has_begun.set()
        assert may_load.wait(PATIENCE_SECONDS)
        return load_model(*args, **keywords)

    monkeypatch.setattr(opening, "load_model", slow)
    with httpx.Client(base_url=scene.server.url, timeout=0.5) as leaving, pytest.raises(httpx.ReadTimeout):
        leaving.post("/admin/models", json={"model": str(scene.folders["fixed"]), "name": "other"}, headers=KEY)
    assert has_begun.wait(PATIENCE_SECONDS)
    may_load.set()
    until(lambda: "other" in scene.names())
    assert scene.embed("other").status_code == 200


class TestUnloading:
    def test_what_waits_is_told_and_what_comes_is_not_found(self, scene: Scene) -> None:
        gate, has_begun = threading.Event(), threading.Event()

        def hold(*_: object) -> None:
            has_begun.set()
            assert gate.wait(PATIENCE_SECONDS)

        hook = scene.engine._core.lane.runner.model.backbone.register_forward_pre_hook(hold)
        scene.load()
        with ThreadPoolExecutor(3) as threads:
            running = threads.submit(scene.embed, "tiny")
            assert has_begun.wait(PATIENCE_SECONDS)
            waiting = threads.submit(scene.embed, "other")
            until(lambda: scene.server.metric("cenote_queued_requests", model="other") == 1)
            unloading = threads.submit(scene.unload)
            until(lambda: scene.names() == ["tiny"])
            assert scene.embed("other").status_code == 404
            gate.set()
            assert unloading.result().json() == {"id": "other", "object": "model", "deleted": True}
            assert waiting.result().status_code == 503
            assert "unloaded" in waiting.result().json()["error"]["message"]
            assert running.result().status_code == 200
        hook.remove()
        assert scene.unload().status_code == 404

    def test_the_memory_comes_back(self, scene: Scene) -> None:
        """Also that of a model of the start, which others may still hold the engine of."""
        model = weakref.ref(scene.engine._core.lane.runner.model.backbone)
        assert scene.embed("tiny").status_code == 200
        assert scene.unload("tiny").status_code == 200
        until(lambda: gc.collect() is not None and model() is None)
        assert scene.server.http.get("/health").status_code == 200
        assert scene.server.http.get("/metrics").status_code == 200
        assert scene.load("tiny").status_code == 200
        assert scene.embed("tiny").status_code == 200

    def test_what_is_loaded_is_set_apart_from_the_garbage(self, scene: Scene) -> None:
        """A look through all of torch and transformers would hold up every request for half a second."""
        gc.unfreeze()
        assert scene.load().status_code == 200
        assert gc.get_freeze_count() > len(gc.get_objects())
        assert scene.unload().status_code == 200
        assert gc.get_freeze_count() > len(gc.get_objects())
        gc.unfreeze()

    def test_again_and_again(self, scene: Scene) -> None:
        for _ in range(3):
            assert scene.load().status_code == 200
            assert scene.embed("other").status_code == 200
            assert scene.unload().status_code == 200
        assert scene.names() == ["tiny"]
        assert not [thread for thread in threading.enumerate() if thread.name == "cenote-admin"]
