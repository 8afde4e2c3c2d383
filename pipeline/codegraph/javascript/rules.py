"""How JavaScript and TypeScript find modules: by relative paths. All others are packages outside of the corpus.

What a `tsconfig.json`, a bundler or a `package.json` would make of a name is not guessed.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.codegraph.links import External, Files, Found, Missing, Place

_EXTENSIONS = (".ts", ".tsx", ".d.ts", ".js", ".jsx", ".mts", ".cts", ".mjs", ".cjs")
_WRITTEN = {
    ".js": (".ts", ".tsx", ".d.ts"),
    ".jsx": (".tsx", ".d.ts"),
    ".mjs": (".mts", ".d.mts"),
    ".cjs": (".cts", ".d.cts"),
    ".ts": (".d.ts",),
    ".tsx": (".d.ts",),
    ".mts": (".d.mts",),
    ".cts": (".d.cts",),
}
"""TypeScript's modules are imported under the names of what they become, or became: a package has their types alone."""

_NAMES = """
    AbortController AbortSignal AggregateError Array ArrayBuffer AsyncFunction AsyncGenerator AsyncIterator Atomics
    BigInt BigInt64Array BigUint64Array Blob Boolean BroadcastChannel Buffer ByteLengthQueuingStrategy CSS Cache
    CompressionStream CountQueuingStrategy Crypto CustomEvent DOMException DOMParser DataView Date
    DecompressionStream Deno Document DocumentFragment Element Error EvalError Event EventSource EventTarget File
    FileList FileReader FinalizationRegistry Float32Array Float64Array FormData Function Generator HTMLElement
    Headers Image Infinity Int16Array Int32Array Int8Array IntersectionObserver Intl Iterator JSON KeyboardEvent Map
    Math MessageChannel MessageEvent MessagePort MouseEvent MutationObserver NaN Node NodeList Notification Number
    Object Performance PerformanceObserver PointerEvent Promise Proxy Range RangeError ReadableStream ReferenceError
    Reflect RegExp Request ResizeObserver Response SVGElement Set SharedArrayBuffer SharedWorker Storage String
    SubtleCrypto Symbol SyntaxError TextDecoder TextEncoder TransformStream TypeError URIError URL URLSearchParams
    Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakRef WeakSet WebAssembly WebSocket Window Worker
    WritableStream XMLHttpRequest __dirname __filename addEventListener alert arguments atob btoa
    cancelAnimationFrame cancelIdleCallback clearImmediate clearInterval clearTimeout confirm console crypto
    customElements decodeURI decodeURIComponent dispatchEvent document encodeURI encodeURIComponent escape eval
    exports fetch getComputedStyle global globalThis history indexedDB isFinite isNaN localStorage location
    matchMedia module navigator parseFloat parseInt performance postMessage process prompt queueMicrotask
    removeEventListener reportError requestAnimationFrame requestIdleCallback require self sessionStorage
    setImmediate setInterval setTimeout structuredClone undefined unescape window
"""


class JavaScriptRules:
    """See `Rules`."""

    languages = frozenset({"javascript", "typescript"})
    builtins: frozenset[str] = frozenset(_NAMES.split())
    receiver_by_name = False
    built_apart = False

    def module(self, module: str, level: int, importer: str, files: Files) -> Found:
        """See `Rules`. The path as it is written, then with an extension, then the index of a folder."""
        if module not in (".", "..") and not module.startswith(("./", "../")):
            return External(module.removeprefix("node:"))
        path = _resolved(importer, module)
        if path is None:
            return Missing(module)
        for candidate in _candidates(path, module.endswith(("/", "/.", "/..")) or module in (".", "..")):
            if files.exists(candidate):
                return Place(candidate, (candidate,))
        return Missing(module)

    def below(self, place: Place, name: str, importer: str, files: Files) -> Found | None:
        """See `Rules`. A module has no modules below it."""
        return None

    def around(self, importer: str, files: Files) -> Place | None:
        """See `Rules`. A module sees nothing that it does not import."""
        return None


def _resolved(importer: str, module: str) -> str | None:
    """Return the path that a relative specifier means, or None where that is outside of the corpus."""
    parts = importer.split("/")[:-1]
    for part in module.split("?", 1)[0].split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _candidates(path: str, is_folder: bool) -> Iterator[str]:
    if path and not is_folder:
        if path.endswith((*_EXTENSIONS, ".d.mts", ".d.cts")):
            yield path
        for written, sources in _WRITTEN.items():
            if path.endswith(written):
                yield from (path.removesuffix(written) + source for source in sources)
        yield from (path + extension for extension in _EXTENSIONS)
    index = f"{path}/index" if path else "index"
    yield from (index + extension for extension in _EXTENSIONS)
