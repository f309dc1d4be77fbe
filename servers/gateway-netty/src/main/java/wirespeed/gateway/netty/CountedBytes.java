// A body in memory that is counted until whoever it was written to has taken it.
package wirespeed.gateway.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.CompositeByteBuf;
import io.netty.buffer.UnpooledByteBufAllocator;
import wirespeed.gateway.core.BodyBudget;

/** A socket's queue may keep it long after its exchange is over. */
final class CountedBytes extends CompositeByteBuf {
    private final BodyBudget budget;
    private final long counted;

    /**
     * Takes the bytes over, which the budget counts already.
     *
     * @param counted what is given back to the budget when they are free
     */
    CountedBytes(ByteBuf bytes, BodyBudget budget, long counted) {
        super(UnpooledByteBufAllocator.DEFAULT, false, 1);
        this.budget = budget;
        this.counted = counted;
        addComponent(true, bytes);
    }

    @Override
    protected void deallocate() {
        super.deallocate();
        budget.add(-counted);
    }
}
