// Bytes of a body that stay longer than the event that brought them, in memory of their own.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import wirespeed.gateway.core.BodyBudget;

/**
 * Pieces are copied: a slice of one byte would keep the whole buffer that it was read into. What is
 * allocated is at most twice what is held and a first block, and is counted in the budget.
 */
final class HeldBytes {
    private static final int FIRST_BLOCK_BYTES = 256;
    private static final int BLOCK_BYTES_MAX = 16 * 1024;

    private final BodyBudget budget;
    private List<ByteBuf> blocks;
    private long bytes;
    private long allocated;

    HeldBytes(BodyBudget budget) {
        this.budget = budget;
    }

    long bytes() {
        return bytes;
    }

    /** Copies a piece; the caller still owns it. */
    void add(ByteBuf piece) {
        int from = piece.readerIndex();
        int left = piece.readableBytes();
        while (left > 0) {
            ByteBuf block = blockWithRoom(piece, left);
            int count = Math.min(left, block.writableBytes());
            block.writeBytes(piece, from, count);
            from += count;
            left -= count;
            bytes += count;
        }
    }

    /** Blocks never grow: a socket may be writing a duplicate of one. */
    private ByteBuf blockWithRoom(ByteBuf piece, int wanted) {
        if (blocks == null) {
            blocks = new ArrayList<>(2);
        } else if (blocks.get(blocks.size() - 1).isWritable()) {
            return blocks.get(blocks.size() - 1);
        }
        long size = Math.max(FIRST_BLOCK_BYTES, Math.max(wanted, bytes));
        int capacity = (int) Math.min(BLOCK_BYTES_MAX, size);
        ByteBuf block = piece.alloc().directBuffer(capacity, capacity);
        blocks.add(block);
        allocated += capacity;
        budget.add(capacity);
        return block;
    }

    /** Duplicates of all blocks, in order; each is the taker's. */
    void forEach(java.util.function.Consumer<ByteBuf> taker) {
        if (blocks != null) {
            blocks.forEach(block -> taker.accept(block.retainedDuplicate()));
        }
    }

    /** All bytes in one piece, which is released here. */
    ByteBuffer whole() {
        ByteBuffer whole = ByteBuffer.allocate(Math.toIntExact(bytes));
        if (blocks != null) {
            for (ByteBuf block : blocks) {
                whole.limit(whole.position() + block.readableBytes());
                block.getBytes(block.readerIndex(), whole);
            }
        }
        release();
        return whole.flip();
    }

    void release() {
        if (blocks != null) {
            blocks.forEach(ByteBuf::release);
            blocks = null;
            budget.add(-allocated);
            allocated = 0;
        }
        bytes = 0;
    }
}
