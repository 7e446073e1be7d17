"""Strings and token ids in, sequences out: the one door to the text layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from cenote.checkpoint.spec import ListwiseSpec, TextSpec
from cenote.errors import InputError, UnsupportedTaskError
from cenote.text.blocks import Blocks
from cenote.text.chat import ChatEncoder, Messages
from cenote.text.content import first_tokens
from cenote.text.frame import read_pair_frame
from cenote.text.inputs import Place, Texts, read_inputs, read_strings
from cenote.text.listwise import ListwiseEncoder
from cenote.text.load import load_tokenizer
from cenote.text.locality import read_locality
from cenote.text.options import ChatOptions, EncodeOptions, PairOptions
from cenote.text.pairs import PairEncoder
from cenote.text.parallelism import allow_parallelism
from cenote.text.piece_reader import PieceCut, PiecedTexts
from cenote.text.pieces import PiecedText
from cenote.text.prompted import read_prompted_pairs
from cenote.text.prompts import choose_prompt
from cenote.text.singles import SingleEncoder
from cenote.text.tokenized import IntArray, TokenizedText
from cenote.text.tokens import Tokens, read_tokens
from cenote.text.unicode import scalar_text

__all__ = ["ChatOptions", "EncodeOptions", "Messages", "PairOptions", "TextEncoder", "Texts"]


class TextEncoder:
    """Turns texts into `TokenizedText`s as the checkpoint asks for. Safe to call from several threads at once.

    `vocab_size` is the model's: larger ids are refused. `max_length` is the most tokens of a sequence, special ones
    included. Encoding takes CPU time: keep it off an event loop.
    """

    def __init__(self, spec: TextSpec, *, vocab_size: int, max_length: int) -> None:
        allow_parallelism()
        self.spec = spec
        self.vocab_size = vocab_size
        self.max_length = max_length
        self._tokenizer = load_tokenizer(spec)
        self._backend = self._tokenizer.backend
        self._locality = read_locality(self._backend)
        self._has_types = spec.uses_token_types and self._tokenizer.gives_token_types
        self._prompted = None if spec.pair_prompt is None else read_prompted_pairs(spec, self._chat_encoder())
        self._singles = SingleEncoder(
            spec=spec,
            tokenizer=self._tokenizer,
            locality=self._locality,
            has_types=self._has_types,
            vocab_size=vocab_size,
            max_length=max_length,
        )

    def encode(self, texts: Texts, options: EncodeOptions | None = None) -> list[TokenizedText]:
        """Return one sequence for each text, in order.

        Strings get the prompt and the special tokens of the tokenizer; an empty or blank string is the special tokens
        only. Token ids are taken as they are: no special tokens, no prompt, no markers, no expansion. Both are cut in
        ids; special tokens, an appended EOS included, are never cut off. Raises `InputError` that names the text at
        fault, `TooLongError` where it is over the limit and `truncate` is off.
        """
        return self._singles.encode(texts, options or EncodeOptions())

    def encode_blocks(self, texts: Texts, options: EncodeOptions | None = None, *, overlap: int = 0) -> list[Blocks]:
        """Return each text as sequences that fit: one, as `encode` gives it, or blocks with `overlap` tokens in common.

        Every block of a string has the special tokens and the prompt; blocks of token ids are the ids alone. Nothing is
        cut off. Raises `InputError` as `encode` does, and where prompt or overlap take more than half of a block.
        """
        return self._singles.encode_blocks(texts, options or EncodeOptions(), overlap=overlap)

    def encode_pieces(
        self, texts: PiecedTexts, cut_at: PieceCut, options: EncodeOptions | None = None, *, split: bool = True
    ) -> list[PiecedText]:
        """Return each text in pieces that share a context, several contexts where it is over the limit and may `split`.

        Raises `InputError` that names the text or the piece at fault, `TooLongError` for a text that may not be split.
        """
        return self._singles.encode_pieces(texts, cut_at, options or EncodeOptions(), split=split)

    def encode_pairs(
        self, queries: str | Sequence[str], documents: str | Sequence[str], options: PairOptions | None = None
    ) -> list[TokenizedText]:
        """Return one sequence for each pair of a query and a document: 1:1, 1:N or N:N. A prompt goes before the query.

        Ids and token types are those of the tokenizer for the pair, or those of the prompt that a language model reads
        pairs in. Raises `InputError` that names the text at fault, `CheckpointError` where the tokenizer has no form
        for pairs.
        """
        options = options or PairOptions()
        if self._prompted is not None:
            return self._prompted.encode(queries, documents, options)
        if options.instruction is not None:
            raise InputError(
                "this model has no prompt with a place for an instruction: put it into the query", param="instruction"
            )
        prompt = scalar_text(choose_prompt(self.spec, options))
        return self._pairs.encode(queries, documents, prompt, options)

    def encode_chats(self, chats: Sequence[Messages], options: ChatOptions | None = None) -> list[TokenizedText]:
        """Return one sequence for each conversation, written out by the checkpoint's chat template.

        Raises `InputError` that names the conversation which the template refuses, `UnsupportedTaskError` where the
        checkpoint has no template.
        """
        return self._chats.encode(chats, options or ChatOptions())

    def tokenize(self, texts: Texts, *, add_special_tokens: bool = True, param: str = "texts") -> list[list[int]]:
        """Return the ids of each text: no prompt, nothing cut. Token ids come back as they are."""
        inputs = read_inputs(texts, param=param, vocab_size=self.vocab_size)
        if inputs.token_ids is not None:
            return [ids.tolist() for ids in inputs.token_ids]
        encodings = self._backend.encode_batch_fast(inputs.texts or [], add_special_tokens=add_special_tokens)
        return [encoding.ids for encoding in encodings]

    def tokens(self, texts: str | Sequence[str], options: EncodeOptions, *, add_special_tokens: bool) -> list[Tokens]:
        """Return every token of each text with its string and its place; the prompt is the one that `options` choose.

        Nothing is cut and no markers are added. Raises `InputError` for what is no string.
        """
        strings, _ = read_strings(texts, param=options.param)
        prompt = scalar_text(choose_prompt(self.spec, options, options.input_type))
        return read_tokens(self._backend, [prompt + text for text in strings], add_special_tokens=add_special_tokens)

    def chat_text(self, messages: Messages, options: ChatOptions) -> str:
        """Return one conversation as the checkpoint's template writes it out. Raises as `encode_chats` does."""
        return self._chats.render(messages, options, Place(options.param, None))

    def first_tokens(self, texts: Sequence[str], limit: int | None) -> list[tuple[str, bool]]:
        """Return each text up to the end of its `limit`th token, `None` for all of it, and whether something is left
        out. Special tokens are not counted.
        """
        texts = [scalar_text(text) for text in texts]
        if limit is None:
            return [(text, False) for text in texts]
        return first_tokens(self._backend, self._locality, texts, limit)

    def token_strings(self, token_ids: Sequence[int] | IntArray) -> list[str]:
        """Return the vocabulary's string for each id; ids that only the model has are given as `<id N>`."""
        strings = ((int(i), self._backend.id_to_token(int(i))) for i in token_ids)
        return [f"<id {i}>" if string is None else string for i, string in strings]

    def decode(self, token_ids: Texts, *, skip_special_tokens: bool = True, param: str = "tokens") -> list[str]:
        """Return the text that the tokenizer makes of each list of ids, or of one list.

        Raises `InputError` for ids that the model does not have, and for what is no list of ids.
        """
        inputs = read_inputs(token_ids, param=param, vocab_size=self.vocab_size)
        if inputs.token_ids is None:
            raise InputError(f"{param} must be a list of token ids, or a list of those", param=param)
        decode = self._tokenizer.hf.decode
        return [decode(ids.tolist(), skip_special_tokens=skip_special_tokens) for ids in inputs.token_ids]

    def listwise(self, spec: ListwiseSpec, max_length: int | None = None) -> ListwiseEncoder:
        """Return what writes the prompts of a listwise reranker; `max_length` lowers the model's limit."""
        limit = min(self.max_length, max_length or self.max_length)
        return ListwiseEncoder(backend=self._backend, locality=self._locality, spec=spec, max_length=limit)

    @property
    def adds_special_tokens(self) -> bool:
        """Whether even an empty text has tokens."""
        return self._singles.frame.size > 0

    @cached_property
    def _pairs(self) -> PairEncoder:
        return PairEncoder(
            backend=self._backend,
            locality=self._locality,
            frame=read_pair_frame(self._backend),
            has_types=self._has_types,
            max_length=self.max_length,
            side=self._tokenizer.truncation_side,
        )

    @cached_property
    def _chats(self) -> ChatEncoder:
        if self.spec.chat_template is None:
            raise UnsupportedTaskError("this model has no chat template: pass texts", param="messages")
        return self._chat_encoder()

    def _chat_encoder(self) -> ChatEncoder:
        return ChatEncoder(
            tokenizer=self._tokenizer,
            locality=self._locality,
            template=self.spec.chat_template or "",
            has_types=self._has_types,
            max_length=self.max_length,
        )
